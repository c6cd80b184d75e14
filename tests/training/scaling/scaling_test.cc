#include "training/scaling/scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace geminid::trainer {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

JobScaling::Device Free(uint64_t bytes) {
  return {.free_bytes = bytes, .capacity_bytes = 64 * kMiB};
}

// An arena must fit on one device.
TEST(CheckRoom, OfDevicesThatHaveTheBytesTogether_CountsWholeArenas) {
  const std::vector<JobScaling::Device> devices = {Free(12 * kMiB), Free(12 * kMiB)};
  EXPECT_TRUE(CheckRoom({4, 8 * kMiB}, {2, 8 * kMiB}, devices).ok());
  const absl::Status refused = CheckRoom({5, 8 * kMiB}, {2, 8 * kMiB}, devices);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(
      std::string(refused.message()),
      HasSubstr("5 ranks need 40.0 MiB of device memory, 8.0 MiB each, and 40.0 MiB of 128 "
                "MiB are free once the 2 ranks before have gone, in which 4 of these fit; "));
}

// Each of more ranks has a smaller part of the batch.
TEST(CheckRoom, OfMoreRanksThatTakeLessEach_HasWhatTheRanksBeforeGiveBack) {
  EXPECT_TRUE(CheckRoom({4, 12 * kMiB}, {1, 16 * kMiB}, {Free(32 * kMiB)}).ok());
  EXPECT_FALSE(CheckRoom({4, 13 * kMiB}, {1, 16 * kMiB}, {Free(32 * kMiB)}).ok());
}

TEST(CheckRoom, OfRanksWithoutAnArena_IsAlwaysThere) {
  EXPECT_TRUE(CheckRoom({9, 0}, {2, 0}, {Free(0)}).ok());
  EXPECT_FALSE(CheckRoom({9, 1}, {2, 0}, {Free(0)}).ok());
}

}  // namespace
}  // namespace geminid::trainer
