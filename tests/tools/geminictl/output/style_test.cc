#include "tools/geminictl/output/style.h"

#include <gtest/gtest.h>

#include <map>

namespace geminid::ctl {
namespace {

Variables Of(std::map<std::string, std::string> values) {
  return [values](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    if (found == values.end()) return std::nullopt;
    return found->second;
  };
}

TEST(ChooseStyle, Terminal_HasColorAndTheLocalesCharacters) {
  const Style style = ChooseStyle(true, false, Of({{"LANG", "en_US.UTF-8"}, {"TERM", "xterm"}}));
  EXPECT_TRUE(style.terminal);
  EXPECT_TRUE(style.color);
  EXPECT_TRUE(style.unicode);
}

TEST(ChooseStyle, NoTerminal_HasNothing) {
  const Style style = ChooseStyle(false, false, Of({{"LANG", "en_US.UTF-8"}}));
  EXPECT_FALSE(style.terminal);
  EXPECT_FALSE(style.color);
  EXPECT_FALSE(style.unicode);
}

TEST(ChooseStyle, NoColor_ByFlagOrNonEmptyVariable) {
  EXPECT_FALSE(ChooseStyle(true, true, Of({})).color);
  EXPECT_FALSE(ChooseStyle(true, false, Of({{"NO_COLOR", "1"}})).color);
  EXPECT_TRUE(ChooseStyle(true, false, Of({{"NO_COLOR", ""}})).color);
}

TEST(ChooseStyle, FirstLocaleThatIsSet_Counts) {
  EXPECT_FALSE(ChooseStyle(true, false, Of({{"LC_ALL", "C"}, {"LANG", "en_US.UTF-8"}})).unicode);
  EXPECT_TRUE(ChooseStyle(true, false, Of({{"LC_ALL", ""}, {"LC_CTYPE", "C.utf8"}})).unicode);
}

TEST(ChooseStyle, DumbTerminal_IsNoTerminal) {
  EXPECT_FALSE(ChooseStyle(true, false, Of({{"TERM", "dumb"}})).terminal);
}

TEST(Paint, WithoutColor_ChangesNothing) {
  EXPECT_EQ(Paint("x", Color::kRed, Style{}), "x");
  EXPECT_EQ(Paint("x", Color::kRed, Style{.terminal = true, .color = true, .unicode = false}),
            "\x1b[31mx\x1b[0m");
}

}  // namespace
}  // namespace geminid::ctl
