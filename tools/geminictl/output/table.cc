#include "tools/geminictl/output/table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tools/geminictl/output/format.h"

namespace geminid::ctl {
namespace {

constexpr size_t kGap = 2;  // spaces between columns

std::string WithoutSpaces(std::string text) {
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  return text;
}

std::string Pad(const std::string& text, size_t width, Align align) {
  const std::string space(width - std::min(width, DisplayWidth(text)), ' ');
  return align == Align::kRight ? space + text : text + space;
}

}  // namespace

void Table::AddRow(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  for (std::string& cell : cells) cell = cell.empty() ? "-" : Printable(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::Render(const Style& style) const {
  std::vector<std::vector<std::string>> lines(1);
  for (const Column& column : columns_) lines[0].push_back(column.name);
  lines.insert(lines.end(), rows_.begin(), rows_.end());
  std::vector<size_t> widths(columns_.size());
  for (std::vector<std::string>& line : lines) {
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (!style.terminal && columns_[i].align == Align::kRight) line[i] = WithoutSpaces(line[i]);
      widths[i] = std::max(widths[i], DisplayWidth(line[i]));
    }
  }
  std::string text;
  for (size_t row = 0; row < lines.size(); ++row) {
    std::string line;
    for (size_t i = 0; i < columns_.size(); ++i) {
      absl::StrAppend(&line, Pad(lines[row][i], widths[i], columns_[i].align),
                      std::string(kGap, ' '));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, row == 0 ? Paint(line, Color::kBold, style) : line, "\n");
  }
  return text;
}

}  // namespace geminid::ctl
