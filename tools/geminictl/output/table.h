// Columns of text.
#ifndef GEMINID_TOOLS_GEMINICTL_OUTPUT_TABLE_H_
#define GEMINID_TOOLS_GEMINICTL_OUTPUT_TABLE_H_

#include <string>
#include <vector>

#include "tools/geminictl/output/style.h"

namespace geminid::ctl {

enum class Align { kLeft, kRight };

struct Column {
  std::string name;  // one word, so that it can be told apart where columns are split at spaces
  Align align = Align::kLeft;
};

// For people, and for awk: without a terminal, cells of right-aligned columns, which are numbers,
// lose the space before their unit, so that every column but a last one of free text is one word.
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One cell per column; a missing or empty one is shown as "-". Control characters become '?'.
  void AddRow(std::vector<std::string> cells);

  bool empty() const { return rows_.empty(); }

  // The header and the rows, each with its newline, and no space at the end of a line.
  std::string Render(const Style& style) const;

 private:
  const std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_OUTPUT_TABLE_H_
