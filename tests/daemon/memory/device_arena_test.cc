#include "daemon/memory/device_arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

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

TEST(DeviceArena, SparseArenaLargerThanTheMachine_HasSlabsWithoutPages) {
  const uint64_t bytes = uint64_t{2} << 40;
  PoolOptions options;
  options.name = "test";
  options.bytes = bytes;
  options.backing = Backing::kSparse;
  absl::StatusOr<DeviceArena> arena = DeviceArena::Create(options, os::ReadMachine());
  ASSERT_TRUE(arena.ok()) << arena.status();
  EXPECT_EQ(arena->slabs().size(), kMaxSlabs);
  uint64_t sum = 0;
  for (const HostPool& slab : arena->slabs()) {
    struct stat file = {};
    ASSERT_EQ(fstat(slab.fd().get(), &file), 0);
    EXPECT_EQ(static_cast<uint64_t>(file.st_size), slab.bytes());
    EXPECT_EQ(file.st_blocks, 0);
    sum += slab.bytes();
  }
  EXPECT_EQ(sum, bytes);
}

TEST(DeviceArena, PopulatedArenaLargerThanTheMachine_IsRefused) {
  PoolOptions options;
  options.name = "test";
  options.bytes = uint64_t{1} << 46;
  EXPECT_TRUE(absl::IsResourceExhausted(DeviceArena::Create(options, os::ReadMachine()).status()));
}

TEST(DeviceArena, Create_MakesTheSlabs) {
  PoolOptions options;
  options.name = "test";
  options.bytes = 5 * base::kPageBytes;
  absl::StatusOr<DeviceArena> arena = DeviceArena::Create(options, os::ReadMachine());
  ASSERT_TRUE(arena.ok()) << arena.status();
  EXPECT_EQ(arena->bytes(), 5 * base::kPageBytes);
  ASSERT_EQ(arena->slabs().size(), 1u);
  EXPECT_EQ(arena->slabs()[0].bytes(), 5 * base::kPageBytes);
}

}  // namespace
}  // namespace geminid::memory
