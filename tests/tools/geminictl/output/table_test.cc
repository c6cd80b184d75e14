#include "tools/geminictl/output/table.h"

#include <gtest/gtest.h>

namespace geminid::ctl {
namespace {

Table Example() {
  Table table({{"NAME"}, {"BYTES", Align::kRight}, {"NOTE"}});
  table.AddRow({"a", "1.5 MiB", "two words"});
  table.AddRow({"größe", "", ""});
  return table;
}

TEST(Table, Terminal_AlignsColumns) {
  EXPECT_EQ(Example().Render({.terminal = true}),
            "NAME     BYTES  NOTE\n"
            "a      1.5 MiB  two words\n"
            "größe        -  -\n");
}

TEST(Table, Plain_MakesNumbersOneWord) {
  EXPECT_EQ(Example().Render({}),
            "NAME    BYTES  NOTE\n"
            "a      1.5MiB  two words\n"
            "größe       -  -\n");
}

TEST(Table, ForeignText_CannotControlTheTerminal) {
  Table table({{"NAME"}});
  table.AddRow({"x\x1b[2J"});
  EXPECT_EQ(table.Render({.terminal = true}), "NAME\nx?[2J\n");
}

TEST(Table, Color_PaintsTheHeaderOnly) {
  Table table({{"A"}});
  table.AddRow({"b"});
  EXPECT_EQ(table.Render({.terminal = true, .color = true}), "\x1b[1mA\x1b[0m\nb\n");
}

}  // namespace
}  // namespace geminid::ctl
