#include "daemon/memory/device_arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/pages.h"

namespace geminid::memory {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(DeviceArena, SlabSizes_AreExactAndBounded) {
  EXPECT_THAT(SlabSizes(0, 10), IsEmpty());
  EXPECT_THAT(SlabSizes(10, 10), ElementsAre(10u));
  EXPECT_THAT(SlabSizes(25, 10), ElementsAre(10u, 10u, 5u));
  EXPECT_THAT(SlabSizes(kMaxSlabBytes + base::kPageBytes),
              ElementsAre(kMaxSlabBytes, base::kPageBytes));
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
