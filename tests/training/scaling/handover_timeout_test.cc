#include "training/scaling/handover_timeout.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace geminid::trainer {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr absl::Duration kUsual = absl::Seconds(60);

TEST(HandoverTimeout, OfASmallState_IsThatOfTraining) {
  EXPECT_EQ(HandoverTimeout({}, kUsual), kUsual);
  EXPECT_LT(HandoverTimeout({.bytes = 10 * kMiB}, kUsual), kUsual + absl::Seconds(1));
}

// 1024 MiB at 64 MiB/s of memory are 16 s, and at 8 MiB/s 128 s.
TEST(HandoverTimeout, OfALargeState_AddsTheTimeOfEachKindOfWork) {
  EXPECT_EQ(HandoverTimeout({.bytes = 1024 * kMiB}, kUsual), kUsual + absl::Seconds(16));
  EXPECT_EQ(HandoverTimeout({.bytes = 1024 * kMiB, .uses_disk = true}, kUsual),
            kUsual + absl::Seconds(16 + 128));
  EXPECT_EQ(
      HandoverTimeout({.bytes = 1024 * kMiB, .uses_disk = true, .is_over_hosts = true}, kUsual),
      kUsual + absl::Seconds(16 + 2 * 128));
  EXPECT_EQ(HandoverTimeout({.bytes = 1024 * kMiB, .link_bytes_per_second = 512 * kMiB}, kUsual),
            kUsual + absl::Seconds(16 + 4));
}

TEST(HandoverTimeout, OfAnyState_IsAtMostAnHourOrThatOfTraining) {
  const HandoverWork huge = {.bytes = uint64_t{1} << 50, .uses_disk = true};
  EXPECT_EQ(HandoverTimeout(huge, kUsual), absl::Hours(1));
  EXPECT_EQ(HandoverTimeout(huge, absl::Hours(2)), absl::Hours(2));
  EXPECT_EQ(HandoverTimeout(huge, absl::InfiniteDuration()), absl::InfiniteDuration());
}

}  // namespace
}  // namespace geminid::trainer
