#include "training/engines/scaling.h"

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

// An arena lies on one device.
TEST(CheckRoom, OfDevicesThatHaveTheBytesTogether_CountsWholeArenas) {
  const std::vector<JobScaling::Device> devices = {Free(12 * kMiB), Free(12 * kMiB)};
  EXPECT_TRUE(CheckRoom(4, 2, 8 * kMiB, devices).ok());
  const absl::Status refused = CheckRoom(5, 2, 8 * kMiB, devices);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(
      std::string(refused.message()),
      HasSubstr("5 ranks need 24.0 MiB of device memory beside what 2 have, 8.0 MiB each, and "
                "24.0 MiB of 128 MiB are free, in which 2 of these fit; "));
}

TEST(CheckRoom, OfRanksWithoutAnArena_IsAlwaysThere) {
  EXPECT_TRUE(CheckRoom(9, 2, 0, {Free(0)}).ok());
  EXPECT_FALSE(CheckRoom(9, 2, 1, {Free(0)}).ok());
}

}  // namespace
}  // namespace geminid::trainer
