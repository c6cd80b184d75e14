#include "base/counted.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace geminid::base {
namespace {

TEST(Counted, OfOne_HasNoPlural) {
  EXPECT_EQ(Counted(0, "rank"), "0 ranks");
  EXPECT_EQ(Counted(1, "rank"), "1 rank");
  EXPECT_EQ(Counted(uint64_t{2}, "rank"), "2 ranks");
}

}  // namespace
}  // namespace geminid::base
