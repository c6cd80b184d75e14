#include "base/suggest.h"

#include <gtest/gtest.h>

namespace geminid::base {
namespace {

TEST(Suggest, EditDistance_KnownPairs) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("abc", ""), 3);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("sokcet", "socket"), 1);
}

TEST(Suggest, DidYouMean_OnlyWhenNear) {
  const std::vector<std::string> known = {"socket", "socket_mode", "log_level"};
  EXPECT_EQ(DidYouMean("sokcet", known), "; did you mean 'socket'?");
  EXPECT_EQ(DidYouMean("loglevel", known), "; did you mean 'log_level'?");
  EXPECT_EQ(DidYouMean("banana", known), "");
  EXPECT_EQ(DidYouMean("log", known), "; did you mean 'log_level'?");
  EXPECT_EQ(DidYouMean("a100", {"a100-40gb", "a100-80gb", "h100-80gb"}),
            "; did you mean 'a100-40gb' or 'a100-80gb'?");
  EXPECT_EQ(DidYouMean("log_level", {"log_level"}), "");  // the typed word itself
  EXPECT_EQ(DidYouMean("lo", known), "");
  EXPECT_EQ(DidYouMean(std::string(100000, 'x'), known), "");
}

}  // namespace
}  // namespace geminid::base
