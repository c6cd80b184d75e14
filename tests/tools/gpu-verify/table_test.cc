// docs/gpu-verification.md and the program have the same questions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tools/gpu-verify/probe.h"

namespace geminid::gpu_verify {
namespace {

// The cells of a table's row without surrounding blanks; empty if the line is not a row.
std::vector<std::string> Cells(const std::string& line) {
  std::vector<std::string> cells;
  for (size_t begin = line.find('|'), end; (end = line.find('|', begin + 1)) != std::string::npos;
       begin = end) {
    const std::string cell = line.substr(begin + 1, end - begin - 1);
    const size_t first = cell.find_first_not_of(' ');
    const size_t last = cell.find_last_not_of(' ');
    cells.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
  }
  return cells;
}

struct Row {
  std::string assumption;
  std::string result;
  std::string otherwise;
};

// The table's rows by their ids.
std::map<std::string, Row> Table() {
  std::ifstream file(GEMINID_SOURCE_DIR "/docs/gpu-verification.md");
  EXPECT_TRUE(file.is_open());
  std::map<std::string, Row> rows;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] != '|') continue;
    const std::vector<std::string> cells = Cells(line);
    if (cells.size() != 4 || cells[0] == "id" || cells[0][0] == '-') continue;
    EXPECT_TRUE(rows.emplace(cells[0], Row{cells[1], cells[2], cells[3]}).second) << cells[0];
  }
  return rows;
}

constexpr char kNotProbed[] = "not probed by the program";
constexpr int kProducts = 5;  // P1 to P5, which geminid-kernel-check times

TEST(Table, EveryQuestionOfTheProgram_HasARow) {
  const std::map<std::string, Row> rows = Table();
  for (const Probe& probe : Catalogue()) {
    ASSERT_TRUE(rows.contains(probe.id)) << probe.id;
    EXPECT_THAT(rows.at(probe.id).result, testing::Not(testing::HasSubstr(kNotProbed))) << probe.id;
  }
}

TEST(Table, EveryRow_IsOfTheProgramOrSaysWhyNot) {
  std::set<std::string> known;
  for (const Probe& probe : Catalogue()) known.insert(probe.id);
  for (const auto& [id, row] : Table()) {
    EXPECT_FALSE(row.assumption.empty()) << id;
    EXPECT_FALSE(row.otherwise.empty()) << id;
    if (known.contains(id) || id[0] == 'P') continue;
    EXPECT_THAT(row.result, testing::StartsWith(std::string(kNotProbed) + ": ")) << id;
  }
}

TEST(Table, Numbers_HaveNoGap) {
  const std::map<std::string, Row> rows = Table();
  for (int i = 1; i <= 27; ++i) EXPECT_TRUE(rows.contains("G" + std::to_string(i))) << i;
  for (int i = 1; i <= 3; ++i) EXPECT_TRUE(rows.contains("R" + std::to_string(i))) << i;
  for (int i = 1; i <= kProducts; ++i) EXPECT_TRUE(rows.contains("P" + std::to_string(i))) << i;
  EXPECT_TRUE(rows.contains("S1"));  // the whole step
  EXPECT_EQ(rows.size(), 31u + kProducts);
}

TEST(Catalogue, Ids_AreUniqueAndTimesFitTheLimits) {
  std::set<std::string> ids;
  double seconds = 0;
  double quick_seconds = 0;
  for (const Probe& probe : Catalogue()) {
    EXPECT_TRUE(ids.insert(probe.id).second) << probe.id;
    EXPECT_NE(probe.run, nullptr) << probe.id;
    EXPECT_LE(probe.quick_seconds, probe.seconds) << probe.id;
    seconds += probe.seconds;
    quick_seconds += probe.quick_seconds;
  }
  EXPECT_LT(seconds, 8 * 60);
  EXPECT_LT(quick_seconds, 2.5 * 60);  // most probes end before their time limit
}

}  // namespace
}  // namespace geminid::gpu_verify
