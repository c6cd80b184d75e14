#include "tools/geminictl/output/format.h"

#include <gtest/gtest.h>

#include <cmath>

namespace geminid::ctl {
namespace {

constexpr Style kAscii = {};
constexpr Style kUnicode = {.terminal = true, .color = false, .unicode = true};

TEST(FormatDuration, TwoLargestUnits) {
  EXPECT_EQ(FormatDuration(0.25), "0.2 s");
  EXPECT_EQ(FormatDuration(59.9), "59.9 s");
  EXPECT_EQ(FormatDuration(60), "1 min 0 s");
  EXPECT_EQ(FormatDuration(3600 * 2 + 60 * 12 + 5), "2 h 12 min");
  EXPECT_EQ(FormatDuration(86400 * 3 + 3600 * 4), "3 d 4 h");
  EXPECT_EQ(FormatDuration(std::nan("")), "-");
  EXPECT_EQ(FormatDuration(-1), "-");
}

TEST(FormatRate, IsInBinaryUnits) {
  EXPECT_EQ(FormatRate(1536), "1.5 KiB/s");
  EXPECT_EQ(FormatRate(0), "-");
}

TEST(FormatShare, IsPercent) { EXPECT_EQ(FormatShare(0.1234), "12.3 %"); }

TEST(Printable, ControlCharacters_BecomeQuestionMarks) {
  EXPECT_EQ(Printable("a\x1b[2Jb\n\x7f"), "a?[2Jb??");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "1m"),
            "?1m");  // U+009B, the other start of an escape sequence
  EXPECT_EQ(Printable("größe"), "größe");
}

TEST(DisplayWidth, CountsCodePoints) { EXPECT_EQ(DisplayWidth("größe"), 5u); }

TEST(Bar, Parts_AreInProportion) {
  EXPECT_EQ(Bar({50, 25, 100}, 8, kAscii), "####==..");
  EXPECT_EQ(Bar({50, 25, 100}, 8, kUnicode), "████▒▒··");
  EXPECT_EQ(Bar({0, 0, 100}, 4, kAscii), "....");
  EXPECT_EQ(Bar({100, 0, 100}, 4, kAscii), "####");
}

TEST(Bar, SmallParts_AreSeen) { EXPECT_EQ(Bar({1, 1, 1000000}, 6, kAscii), "#=...."); }

TEST(Bar, ContradictoryNumbers_StayWithinTheWidth) {
  EXPECT_EQ(Bar({300, 300, 100}, 4, kAscii), "####");
  EXPECT_EQ(Bar({5, 5, 0}, 4, kAscii), "....");
}

TEST(BarLegend, Ascii_IsAscii) { EXPECT_EQ(BarLegend(kAscii), "# in use  = reserved  . free"); }

}  // namespace
}  // namespace geminid::ctl
