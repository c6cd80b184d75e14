#include "client/zero/core/placer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <vector>

namespace geminid::zero {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

bool Free(uint32_t) { return false; }
bool Stored(std::span<const uint32_t>) { return true; }

Move GatherOf(uint32_t chunk, std::optional<uint64_t> offset = {}) {
  return {Move::Kind::kGather, chunk, offset};
}

class PlacerTest : public ::testing::Test {
 protected:
  Placer placer_{100, 10, {40, 40, 40, 20}};
};

TEST_F(PlacerTest, Gathers_GoWhereThePlanWantsThemOrWhereThereIsRoom) {
  EXPECT_THAT(placer_.Place({GatherOf(0, 60), GatherOf(1)}),
              ElementsAre(Step{Step::Kind::kGather, 0, 60}, Step{Step::Kind::kGather, 1, 0}));
}

TEST_F(PlacerTest, GatherThatFindsNoRoom_GoesToHostMemorySoThatOtherRanksNeedNotWait) {
  (void)placer_.Place({GatherOf(0), GatherOf(1)});
  EXPECT_THAT(placer_.Place({GatherOf(2)}), ElementsAre(Step{Step::Kind::kGatherToHost, 2, 0}));
  EXPECT_FALSE(placer_.OnDevice(2));
}

TEST_F(PlacerTest, ChunkThatIsNeeded_MakesOthersMakeWay) {
  (void)placer_.Place({GatherOf(0), GatherOf(1), GatherOf(2)});
  const auto steps = placer_.Load(std::vector<uint32_t>{2}, [](uint32_t c) { return c == 0; });
  ASSERT_TRUE(steps.ok()) << steps.status();
  EXPECT_THAT(*steps,
              ElementsAre(Step{Step::Kind::kToHost, 1}, Step{Step::Kind::kToDevice, 2, 40}));
}

TEST_F(PlacerTest, PlaceOfAChunk_IsKnownFromItsMoveOn) {
  (void)placer_.Place({GatherOf(0), GatherOf(1, 60)});
  EXPECT_EQ(placer_.offset(0), 0u);
  EXPECT_EQ(placer_.offset(1), 60u);
  const auto steps = placer_.Reserve(50, 0, [](uint32_t c) { return c == 0; });
  ASSERT_TRUE(steps.ok()) << steps.status();
  EXPECT_EQ(placer_.offset(1), 60u) << "it is away";
  (void)placer_.Place({{Move::Kind::kDrop, 0}});
  EXPECT_TRUE(placer_.Load(std::vector<uint32_t>{1}, Free).ok());
  EXPECT_EQ(placer_.offset(1), 0u);
}

TEST_F(PlacerTest, ChunksNeededTogether_ArePackedAnewIfThatIsWhatItTakes) {
  (void)placer_.Place({GatherOf(0, 30), GatherOf(1)});
  const auto steps = placer_.Load(std::vector<uint32_t>{0, 1}, Free);
  ASSERT_TRUE(steps.ok()) << steps.status();
  EXPECT_TRUE(placer_.OnDevice(0));
  EXPECT_TRUE(placer_.OnDevice(1));
}

TEST_F(PlacerTest, WhatHeldChunksLeaveNoRoomFor_IsRefusedWithNumbers) {
  (void)placer_.Place({GatherOf(0), GatherOf(1), GatherOf(2)});
  const auto steps = placer_.Load(std::vector<uint32_t>{2}, [](uint32_t c) { return c != 2; });
  EXPECT_TRUE(absl::IsResourceExhausted(steps.status())) << steps.status();
}

TEST_F(PlacerTest, GradientThatFindsNoRoom_IsOpenedWhenItIsNeeded) {
  (void)placer_.Place({GatherOf(0), GatherOf(1)});
  EXPECT_THAT(placer_.Place({{Move::Kind::kOpen, 2}}), IsEmpty());
  const auto steps = placer_.Load(std::vector<uint32_t>{2}, Free);
  ASSERT_TRUE(steps.ok());
  EXPECT_EQ(steps->back(), (Step{Step::Kind::kOpen, 2, 0}));
}

// Chunks 0 to 2 are weights that this rank gathers alone.
class PlacerOfOneRankTest : public ::testing::Test {
 protected:
  Placer placer_{100, 10, {40, 40, 40, 20}, [](uint32_t chunk) { return chunk < 3; }};
};

TEST_F(PlacerOfOneRankTest, WeightsThatFindNoRoom_AreGatheredWhenTheyAreNeeded) {
  (void)placer_.Place({GatherOf(0), GatherOf(1)});
  EXPECT_THAT(placer_.Place({GatherOf(2)}), IsEmpty());
  EXPECT_FALSE(placer_.OnDevice(2));
  const auto steps = placer_.Load(std::vector<uint32_t>{2}, [](uint32_t c) { return c == 0; });
  ASSERT_TRUE(steps.ok()) << steps.status();
  EXPECT_THAT(*steps, ElementsAre(Step{Step::Kind::kDrop, 1}, Step{Step::Kind::kGather, 2, 40}));
}

TEST_F(PlacerOfOneRankTest, WeightsThatMakeWay_NeedNoHostMemory) {
  (void)placer_.Place({GatherOf(0), GatherOf(1)});
  const auto refuse = [](std::span<const uint32_t>) { return false; };
  EXPECT_THAT(placer_.MakeWay(std::vector<uint32_t>{1}, 50, Free, refuse),
              ElementsAre(Step{Step::Kind::kDrop, 1}, Step{Step::Kind::kDrop, 0}));
}

TEST_F(PlacerOfOneRankTest, WeightsThatMakeRoom_AreDroppedAndOnlyGradientsGoToTheHost) {
  (void)placer_.Place({GatherOf(3), GatherOf(0)});
  EXPECT_THAT(*placer_.Reserve(90, 0, Free),
              ElementsAre(Step{Step::Kind::kToHost, 3}, Step{Step::Kind::kDrop, 0},
                          Step{Step::Kind::kReserve, 0, 90}));
  EXPECT_THAT(placer_.Place({{Move::Kind::kDrop, 0}}), IsEmpty()) << "nothing is left to drop";
}

TEST_F(PlacerTest, GrowingWorkspace_SendsAwayWhatIsInItsWayButNothingHeld) {
  (void)placer_.Place({GatherOf(0), GatherOf(1, 60)});
  EXPECT_THAT(*placer_.Reserve(20, 0, Free),
              ElementsAre(Step{Step::Kind::kToHost, 1}, Step{Step::Kind::kReserve, 0, 20}));
  EXPECT_TRUE(
      absl::IsResourceExhausted(placer_.Reserve(70, 0, [](uint32_t) { return true; }).status()));
  EXPECT_EQ(placer_.reserved_bytes(), 20u);
}

// Operators hold chunk 3, between a chunk that can leave and free room. 80 bytes are free for
// workspace, but not in one piece.
TEST_F(PlacerTest, OperatorsChunkAboveAnother_TakesItsPlaceSoThatWorkspaceCanGrow) {
  (void)placer_.Place({GatherOf(0), GatherOf(3)});
  const std::vector<uint32_t> chunks = {3};
  EXPECT_THAT(placer_.MakeWay(chunks, 80, Free, Stored),
              ElementsAre(Step{Step::Kind::kToHost, 3}, Step{Step::Kind::kToHost, 0}));
  const auto steps = placer_.Load(chunks, Free);
  ASSERT_TRUE(steps.ok()) << steps.status();
  EXPECT_THAT(*steps, ElementsAre(Step{Step::Kind::kToDevice, 3, 0}));
  EXPECT_TRUE(placer_.Reserve(80, 0, [](uint32_t c) { return c == 3; }).ok());
}

TEST_F(PlacerTest, OperatorsChunkToBeGathered_ComesToTheBottomSoThatWorkspaceCanGrow) {
  (void)placer_.Place({GatherOf(0)});
  const std::vector<uint32_t> chunks = {3};
  EXPECT_THAT(placer_.MakeWay(chunks, 80, Free, Stored), ElementsAre(Step{Step::Kind::kToHost, 0}));
  EXPECT_THAT(placer_.Place({GatherOf(3)}), ElementsAre(Step{Step::Kind::kGather, 3, 0}));
}

TEST_F(PlacerTest, OperatorsChunksOfWhichOneIsAtTheBottom_LeaveItThere) {
  (void)placer_.Place({GatherOf(3), GatherOf(0), GatherOf(1)});
  const std::vector<uint32_t> chunks = {1, 3};
  EXPECT_THAT(placer_.MakeWay(chunks, 40, Free, Stored),
              ElementsAre(Step{Step::Kind::kToHost, 1}, Step{Step::Kind::kToHost, 0}));
  EXPECT_THAT(*placer_.Load(chunks, Free), ElementsAre(Step{Step::Kind::kToDevice, 1, 20}));
}

TEST_F(PlacerTest, WhatHostMemoryDoesNotTake_StaysWhereItIs) {
  (void)placer_.Place({GatherOf(0), GatherOf(3)});
  std::vector<uint32_t> asked;
  const auto refuse = [&asked](std::span<const uint32_t> chunks) {
    asked.assign(chunks.begin(), chunks.end());
    return false;
  };
  EXPECT_THAT(placer_.MakeWay(std::vector<uint32_t>{3}, 80, Free, refuse), IsEmpty());
  EXPECT_THAT(asked, ElementsAre(3, 0));
  EXPECT_TRUE(placer_.OnDevice(3));
  EXPECT_TRUE(placer_.OnDevice(0));
}

TEST_F(PlacerTest, NothingMakesWay_WhereWorkspaceHasEnoughOrWouldGainNothing) {
  (void)placer_.Place({GatherOf(0), GatherOf(3)});
  const std::vector<uint32_t> chunks = {3};
  EXPECT_THAT(placer_.MakeWay(chunks, 40, Free, Stored), IsEmpty());
  // The held chunk lies above.
  (void)placer_.Place({GatherOf(1, 60)});
  EXPECT_THAT(placer_.MakeWay(
                  chunks, 80, [](uint32_t c) { return c == 1; }, Stored),
              IsEmpty());
  // The held chunk lies below.
  EXPECT_THAT(placer_.MakeWay(
                  chunks, 40, [](uint32_t c) { return c == 0; }, Stored),
              IsEmpty());
}

TEST_F(PlacerTest, WantedWorkspace_IsTakenAsFarAsNothingMustLeave) {
  (void)placer_.Place({GatherOf(0)});
  EXPECT_THAT(*placer_.Reserve(5, 90, Free), ElementsAre(Step{Step::Kind::kReserve, 0, 60}));
  // The room returns to chunks that need it.
  (void)placer_.Place({GatherOf(1)});
  const auto steps = placer_.Load(std::vector<uint32_t>{1}, [](uint32_t c) { return c == 0; });
  ASSERT_TRUE(steps.ok()) << steps.status();
  EXPECT_THAT(*steps, ElementsAre(Step{.kind = Step::Kind::kReserve, .offset = 10, .before = 60},
                                  Step{Step::Kind::kToDevice, 1, 40}));
}

TEST_F(PlacerTest, BlockBesideAHeldChunkAtTheTop_LiesInAHole) {
  (void)placer_.Place({GatherOf(0, 60)});
  const auto held = [](uint32_t) { return true; };
  EXPECT_FALSE(placer_.Reserve(10, 0, held).ok());
  const auto block = placer_.PlaceBlock(0, 15, held);
  ASSERT_TRUE(block.ok());
  EXPECT_EQ(block->offset, 0u);
  EXPECT_EQ(placer_.used_bytes(), 60u);
  placer_.FreeBlock(0);
  EXPECT_EQ(placer_.used_bytes(), 40u);
}

// For any held chunks and any places of the others: a chunk that fits can be loaded, after some
// moves. A chunk that does not fit is refused.
TEST(PlacerOfRandomArenas, WhatFits_IsBroughtAndNothingElse) {
  std::mt19937 random(5);
  int fitted = 0, refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<uint64_t> bytes;
    for (int c = 0; c < 8; ++c) bytes.push_back(10 * (1 + random() % 5));
    Placer placer(160, 10, bytes);
    Moves gathers;
    for (uint32_t chunk = 0; chunk < bytes.size(); ++chunk) {
      if (random() % 2 == 0) gathers.push_back(GatherOf(chunk, 10 * (random() % 16)));
    }
    (void)placer.Place(gathers);
    std::vector<bool> holds;
    for (uint32_t chunk = 0; chunk < bytes.size(); ++chunk) {
      holds.push_back(placer.OnDevice(chunk) && random() % 2 == 0);
    }
    const auto held = [&](uint32_t chunk) { return holds[chunk]; };
    const uint64_t workspace = 10 * (random() % 8);
    if (!placer.Reserve(workspace, workspace + 10 * (random() % 4), held).ok()) continue;
    std::vector<uint32_t> chunks;
    for (uint32_t chunk = 0; chunk < bytes.size(); ++chunk) {
      if (random() % 3 == 0) chunks.push_back(chunk);
    }
    const bool fits = placer.Fits(chunks, workspace, held);
    Moves loads;
    for (uint32_t chunk = 0; chunk < bytes.size(); ++chunk) {
      const bool needed = std::ranges::find(chunks, chunk) != chunks.end();
      const bool was_gathered =
          std::ranges::any_of(gathers, [&](const Move& move) { return move.chunk == chunk; });
      if (!was_gathered && (needed || random() % 4 == 0)) loads.push_back(GatherOf(chunk));
    }
    std::ranges::shuffle(loads, random);
    (void)placer.Place(loads);
    const bool brought = placer.Load(chunks, held).ok();
    EXPECT_TRUE(brought || !fits) << round;
    if (brought) {
      for (uint32_t chunk : chunks) EXPECT_TRUE(placer.OnDevice(chunk)) << round;
    }
    ++(fits ? fitted : refused);
  }
  EXPECT_GT(fitted, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace geminid::zero
