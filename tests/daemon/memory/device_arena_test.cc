#include "daemon/memory/device_arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/pages.h"
#include "proto/shm/limits.h"

namespace geminid::memory {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(DeviceArena, SlabSizes_AreExactAndBounded) {
  EXPECT_THAT(SlabSizes(0, 10), IsEmpty());
  EXPECT_THAT(SlabSizes(10, 10), ElementsAre(10u));
  EXPECT_THAT(SlabSizes(25, 10), ElementsAre(10u, 10u, 5u));
}

TEST(DeviceArena, SlabBytes_AreTheFewestUnitsOfWhichTheSlabsSuffice) {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  EXPECT_EQ(SlabBytes(base::kPageBytes), kGiB);
  EXPECT_EQ(SlabBytes(64 * kGiB), kGiB);
  EXPECT_EQ(SlabBytes(64 * kGiB + base::kPageBytes), 2 * kGiB);
  EXPECT_EQ(SlabBytes(192 * kGiB), 3 * kGiB);
  EXPECT_EQ(SlabBytes(shm::kMaxArenaBytes), 256 * kGiB);
  for (const uint64_t bytes : {base::kPageBytes, 192 * kGiB, 2048 * kGiB, shm::kMaxArenaBytes}) {
    EXPECT_LE(SlabSizes(bytes, SlabBytes(bytes)).size(), kMaxSlabs) << bytes;
  }
}

TEST(DeviceArena, LargeArenas_NeedFewSlabs) {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  EXPECT_EQ(SlabSizes(8 * kGiB, SlabBytes(8 * kGiB)).size(), 8u);
  EXPECT_EQ(SlabSizes(100 * kGiB, SlabBytes(100 * kGiB)).size(), 50u);
  EXPECT_EQ(SlabSizes(141 * kGiB, SlabBytes(141 * kGiB)).size(), 47u);
}

}  // namespace
}  // namespace geminid::memory
