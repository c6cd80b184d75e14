#include "client/zero/core/shortage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace geminid::zero {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(Shortage, MoreThanTheArena_SaysByHowMuch) {
  const std::string text = Describe({.operation = 3,
                                     .parameters = "'a' and 3 more",
                                     .chunk_bytes = 2 * kMiB,
                                     .activation_bytes = 2 * kMiB + kMiB / 2,
                                     .arena_bytes = 4 * kMiB});
  EXPECT_THAT(text, HasSubstr("operator 3"));
  EXPECT_THAT(text, HasSubstr("gradients (of 'a' and 3 more)"));
  EXPECT_THAT(text, HasSubstr("together 4.5 MiB, 512 KiB more than the device arena of 4.0 MiB"));
  EXPECT_THAT(text, Not(HasSubstr("at least")));  // other operators may need more
}

// "2.0 MiB beside 2.0 MiB in 4.0 MiB" would read as if the chunk fitted.
TEST(Shortage, RoomInPieces_IsNotCalledTooLittle) {
  const std::string text = Describe({.chunk_bytes = 2 * kMiB,
                                     .activation_bytes = kMiB,
                                     .state_bytes = kMiB / 2,
                                     .arena_bytes = 4 * kMiB});
  EXPECT_THAT(text, HasSubstr("together 3.5 MiB, and the free 512 KiB of"));
  EXPECT_THAT(text, HasSubstr("fragmented"));
  EXPECT_THAT(text, Not(HasSubstr("at least")));
}

}  // namespace
}  // namespace geminid::zero
