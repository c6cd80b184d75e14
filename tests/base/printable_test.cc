#include "base/printable.h"

#include <gtest/gtest.h>

namespace geminid::base {
namespace {

TEST(Printable, WhatCanRewriteATerminalOrTurnAText_BecomesOneQuestionMark) {
  EXPECT_EQ(Printable("a\x1b[2Jb\n\x7f"), "a?[2Jb??");
  for (const char* const character :
       {"\xc2\x80", "\xc2\x9b", "\xd8\x9c", "\xe2\x80\x8e", "\xe2\x80\x8f", "\xe2\x80\xa8",
        "\xe2\x80\xa9", "\xe2\x80\xaa", "\xe2\x80\xae", "\xe2\x81\xa6", "\xe2\x81\xa9",
        "\xef\xbb\xbf", "\xef\xbf\xb9", "\xf3\xa0\x81\x81"}) {
    EXPECT_EQ(Printable(std::string("a") + character + "b"), "a?b") << character + 0;
  }
}

TEST(Printable, OtherCharactersOfAnyLanguage_Stay) {
  for (const char* const text :
       {"", "größe", "重み", "שלום", "مرحبا", "👍🏽", "\xc2\xa0", "\xe2\x80\xa6"}) {
    EXPECT_EQ(Printable(text), text);
  }
}

// A terminal that is not set to UTF-8 interprets 0x9b as the beginning of a command.
TEST(Printable, BytesThatAreNoCharacter_BecomeAQuestionMarkEach) {
  EXPECT_EQ(Printable("a\x9b[2J"), "a?[2J");
  EXPECT_EQ(Printable("\xff\xfe"), "??");
  EXPECT_EQ(Printable("\xe2\x80"), "??");            // cut short
  EXPECT_EQ(Printable("\xc0\x9b"), "??");            // a longer form than needed
  EXPECT_EQ(Printable("\xe0\x82\x9b"), "???");       // likewise
  EXPECT_EQ(Printable("\xed\xa0\x80"), "???");       // half of a pair
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "????");  // beyond the last
  EXPECT_EQ(Printable("\xc3x"), "?x");
}

}  // namespace
}  // namespace geminid::base
