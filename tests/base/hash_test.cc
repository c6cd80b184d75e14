#include "base/hash.h"

#include <gtest/gtest.h>

namespace geminid::base {
namespace {

TEST(Fnv1a, OfTexts_IsThePublishedValue) {
  // Fowler, Noll and Vo's own test vectors.
  EXPECT_EQ(Fnv1a().value(), 0xcbf29ce484222325u);
  Fnv1a hash;
  hash.AddText("foobar");
  EXPECT_EQ(hash.value(), 0x85944171f73967e8u);
}

TEST(Fnv1a, OfANumber_IsThatOfItsBytesFromTheLowest) {
  Fnv1a number;
  number.Add(0x6867666564636261u);
  Fnv1a text;
  text.AddText("abcdefgh");
  EXPECT_EQ(number.value(), text.value());
}

}  // namespace
}  // namespace geminid::base
