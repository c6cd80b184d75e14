#include "client/zero/core/arena_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace geminid::zero {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

bool None(uint32_t) { return false; }
bool Any(uint32_t) { return true; }

TEST(ArenaMap, FreePlaceThatIsWanted_IsGiven) {
  ArenaMap map(100, 10);
  map.Put(1, 10, 20);
  const auto room = map.FindRoom(20, 50, None);
  ASSERT_TRUE(room.has_value());
  EXPECT_EQ(room->offset, 50u);
}

TEST(ArenaMap, TakenPlaceThatIsWanted_GivesTheLowestHoleInstead) {
  ArenaMap map(100, 10);
  map.Put(1, 10, 20);
  map.Put(2, 40, 20);
  EXPECT_EQ(map.FindRoom(10, 15, None)->offset, 30u);
  EXPECT_EQ(map.FindRoom(20, 15, None)->offset, 60u);
  EXPECT_FALSE(map.FindRoom(41, 15, None).has_value());
}

TEST(ArenaMap, NoHoleThatIsLargeEnough_IsMadeWhereTheFewestBytesMustLeave) {
  ArenaMap map(100, 0);
  map.Put(1, 0, 40);
  map.Put(2, 45, 10);
  map.Put(3, 60, 40);
  const auto room = map.FindRoom(15, std::nullopt, Any);
  ASSERT_TRUE(room.has_value());
  EXPECT_EQ(room->offset, 40u);
  EXPECT_THAT(room->evict, ElementsAre(2));
  const auto without = map.FindRoom(15, std::nullopt, [](uint32_t owner) { return owner != 2; });
  EXPECT_THAT(without->evict, ElementsAre(1));
}

TEST(ArenaMap, Workspace_KeepsChunksBelowItAndSaysWhatIsInItsWay) {
  ArenaMap map(100, 0);
  map.Put(1, 0, 40);
  map.Put(2, 60, 20);
  EXPECT_EQ(map.MostWorkspace(), 20u);
  EXPECT_THAT(*map.InTheWay(20, None), IsEmpty());
  EXPECT_THAT(*map.InTheWay(30, Any), ElementsAre(2));
  EXPECT_FALSE(map.InTheWay(30, None).has_value());
  EXPECT_FALSE(map.InTheWay(101, Any).has_value());
  map.SetWorkspace(20);
  EXPECT_FALSE(map.FindRoom(10, 85, None)->offset == 85u);
}

TEST(ArenaMap, Floor_IsForNoChunk) {
  ArenaMap map(100, 0);
  map.SetFloor(30);
  EXPECT_EQ(map.FindRoom(10, 0, None)->offset, 30u);
  EXPECT_FALSE(map.InTheWay(71, Any).has_value());
}

}  // namespace
}  // namespace geminid::zero
