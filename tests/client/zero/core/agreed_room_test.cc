#include "client/zero/core/agreed_room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace geminid::zero {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr AgreedExtent kRoom = {100, 130};

PlaceRequest Ten() { return {.bytes = 10, .preferred = {}, .avoided = {}}; }
AgreedChunk Idle(uint32_t chunk, uint64_t begin, uint64_t last_use,
                 uint64_t next_use = AgreedChunk::kUnknown) {
  return {chunk, {begin, begin + 10}, true, next_use, last_use};
}
AgreedChunk Held(uint32_t chunk, uint64_t begin) {
  return {chunk, {begin, begin + 10}, false, 0, 0};
}

TEST(AgreedRoom, WhileThereIsAHole_NothingIsEvicted) {
  const auto place = FindAgreedPlace(kRoom, Ten(), {Idle(0, 100, 1), Idle(1, 120, 2)});
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->offset, 110u);
  EXPECT_THAT(place->evicted, IsEmpty());
}

TEST(AgreedRoom, Full_EvictsTheLeastRecentlyUsedWhereNothingIsKnown) {
  const auto place =
      FindAgreedPlace(kRoom, Ten(), {Idle(0, 100, 7), Idle(1, 110, 3), Idle(2, 120, 5)});
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->offset, 110u);
  EXPECT_THAT(place->evicted, ElementsAre(1));
}

TEST(AgreedRoom, Full_EvictsTheFarthestNextUseHoweverRecentTheLast) {
  const auto place =
      FindAgreedPlace(kRoom, Ten(), {Idle(0, 100, 9, 4), Idle(1, 110, 1, 2), Idle(2, 120, 5, 3)});
  ASSERT_TRUE(place.has_value());
  EXPECT_THAT(place->evicted, ElementsAre(0));
}

TEST(AgreedRoom, ChunkOfUnknownNextUse_LeavesBeforeOneThatAPlanUses) {
  const auto place =
      FindAgreedPlace(kRoom, Ten(), {Idle(0, 100, 1, 1000), Idle(1, 110, 9), Held(2, 120)});
  ASSERT_TRUE(place.has_value());
  EXPECT_THAT(place->evicted, ElementsAre(1));
}

// Of those that would leave first only what lies in the place that is found then.
TEST(AgreedRoom, LargerThanAnyChunk_EvictsNeighboursAndNoOther) {
  const PlaceRequest twenty = {.bytes = 20, .preferred = {}, .avoided = {}};
  const auto place = FindAgreedPlace(
      {100, 140}, twenty, {Idle(0, 100, 1), Held(1, 110), Idle(2, 120, 2), Idle(3, 130, 3)});
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->offset, 120u);
  EXPECT_THAT(place->evicted, ElementsAre(2, 3));
}

TEST(AgreedRoom, HeldChunksInTheWay_LeaveNoPlace) {
  EXPECT_FALSE(FindAgreedPlace({100, 120}, Ten(), {Held(0, 95), Held(1, 105)}).has_value());
  EXPECT_FALSE(FindAgreedPlace({100, 109}, Ten(), {}).has_value());
  EXPECT_FALSE(FindAgreedPlace({}, Ten(), {}).has_value());
}

TEST(AgreedRoom, FreePlaces_AreThoseThatPlansWantThenThoseThatTheyDoNotUse) {
  PlaceRequest request = Ten();
  request.preferred = {95, 120};
  request.avoided = {{100, 110}};
  EXPECT_EQ(FindAgreedPlace(kRoom, request, {})->offset, 120u) << "95 is outside";
  EXPECT_EQ(FindAgreedPlace(kRoom, request, {Held(0, 120)})->offset, 110u);
  const auto avoided = FindAgreedPlace(kRoom, request, {Held(0, 120), Idle(1, 110, 1)});
  EXPECT_EQ(avoided->offset, 100u);
  EXPECT_THAT(avoided->evicted, IsEmpty());
}

}  // namespace
}  // namespace geminid::zero
