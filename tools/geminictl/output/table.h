// Columns of text.
#ifndef GEMINID_TOOLS_GEMINICTL_OUTPUT_TABLE_H_
#define GEMINID_TOOLS_GEMINICTL_OUTPUT_TABLE_H_

#include <string>
#include <vector>

#include "tools/geminictl/output/style.h"

namespace geminid::ctl {

enum class Align { kLeft, kRight };

struct Column {
  std::string name;  // one word, so that programs can split columns at spaces
  Align align = Align::kLeft;
};

// A table for people and for awk. Without a terminal, cells of right-aligned columns (numbers) lose
// the space before their unit. So every column is one word, except a last column of free text.
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
