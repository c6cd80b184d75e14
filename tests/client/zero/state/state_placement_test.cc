#include "client/zero/state/state_placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace geminid::zero {
namespace {

using testing::ElementsAre;

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Three chunks of 100 gathered bytes. The last one is frozen.
StatePlacementProblem Problem() {
  StatePlacementProblem problem;
  problem.trace.arena_bytes = 1000;
  for (bool frozen : {false, false, true}) {
    TraceChunk chunk;
    chunk.device_bytes = 100;
    chunk.transfer_bytes = 50;
    chunk.gradient_bytes = frozen ? 0 : 50;
    chunk.frozen = frozen;
    problem.trace.chunks.push_back(chunk);
  }
  const auto moment = [&](std::vector<TraceUse> uses, uint64_t workspace) {
    TraceMoment made;
    made.uses = std::move(uses);
    made.workspace_bytes = workspace;
    problem.trace.moments.push_back(made);
  };
  moment({{0, false}, {2, false}}, 10);
  moment({{1, false}}, 300);
  moment({{1, true}}, 200);
  moment({{0, true}}, 50);
  problem.order = {2, 0, 1};
  problem.state_bytes = {200, 220, 30};
  problem.spare_bytes = 40;
  return problem;
}

TEST(StateBytes, CountsTheSpareOnceAndOnlyForTrainedChunks) {
  EXPECT_EQ(StateBytes(Problem(), 0), 0u);
  EXPECT_EQ(StateBytes(Problem(), 1), 30u);
  EXPECT_EQ(StateBytes(Problem(), 2), 270u);
  EXPECT_EQ(StateBytes(Problem(), 3), 490u);
}

TEST(MarginBytes, IsWhatTheFullestMomentLeaves) {
  // The moments take 210, 400, 300 and 250 bytes. The 250 include the gradient of the moment
  // before, which is leaving.
  EXPECT_EQ(MarginBytes(Problem().trace, 1), 600u);
  StatePlacementProblem late = Problem();
  late.trace.moments[3].workspace_bytes = 250;
  EXPECT_EQ(MarginBytes(late.trace, 0), 600u);
  EXPECT_EQ(MarginBytes(late.trace, 1), 550u);
  late.trace.arena_bytes = 20;
  EXPECT_EQ(MarginBytes(late.trace, 1), 0u);
}

TEST(CountThatFits, TakesThePrefixThatFitsWithItsSpare) {
  EXPECT_EQ(CountThatFits(Problem(), 29), 0u);
  EXPECT_EQ(CountThatFits(Problem(), 269), 1u);
  EXPECT_EQ(CountThatFits(Problem(), 270), 2u);
  EXPECT_EQ(CountThatFits(Problem(), 1000), 3u);
}

TEST(EverythingFits, NeedsRoomForStateChunksAndTheLargestWorkspace) {
  StatePlacementProblem problem = Problem();
  problem.trace.arena_bytes = 490 + 300 + 300;
  EXPECT_TRUE(EverythingFits(problem));
  --problem.trace.arena_bytes;
  EXPECT_FALSE(EverythingFits(problem));
}

TEST(WithStateOnDevice, ShrinksTheArenaAndEndsTheTransfersOfThoseChunks) {
  const Trace trace = WithStateOnDevice(Problem(), 2);
  EXPECT_EQ(trace.arena_bytes, 730u);
  EXPECT_EQ(trace.chunks[2].transfer_bytes, 0u);
  EXPECT_EQ(trace.chunks[0].transfer_bytes, 0u);
  EXPECT_EQ(trace.chunks[0].gradient_bytes, 0u);
  EXPECT_EQ(trace.chunks[1].transfer_bytes, 50u);
  EXPECT_EQ(trace.chunks[1].gradient_bytes, 50u);
}

TEST(CandidateCounts, AreQuartersWithoutRepetition) {
  EXPECT_THAT(CandidateCounts(0), ElementsAre(0));
  EXPECT_THAT(CandidateCounts(2), ElementsAre(0, 1, 2));
  EXPECT_THAT(CandidateCounts(10), ElementsAre(0, 2, 5, 7, 10));
}

TEST(IsBetter, PrefersShorterStepsThenFewerBytes) {
  const auto plan = [](double seconds, uint64_t up, uint64_t down) {
    Plan made;
    made.predicted_step_seconds = seconds;
    made.transfer_bytes = up;
    made.gradient_bytes = down;
    return made;
  };
  EXPECT_TRUE(IsBetter(plan(0.98, 200, 0), plan(1, 100, 0)));
  EXPECT_FALSE(IsBetter(plan(0.995, 100, 0), plan(1, 100, 0)));
  EXPECT_TRUE(IsBetter(plan(1.005, 60, 30), plan(1, 60, 40)));
  EXPECT_FALSE(IsBetter(plan(1.02, 0, 0), plan(1, 100, 100)));
}

TEST(StreamedGranules, AreAllOfTrainedChunksAndNoneOfOthers) {
  Layout layout;
  layout.granules = 5;
  layout.chunks.resize(3);
  for (uint32_t i = 0; i < 2; ++i) {
    layout.chunks[i].first_granule = 2 * i;
    layout.chunks[i].granules = 2;
  }
  layout.chunks[2].first_granule = 4;
  layout.chunks[2].granules = 1;
  layout.chunks[1].trainable = false;
  EXPECT_THAT(StreamedGranules(layout), ElementsAre(true, true, false, false, true));
  layout.chunks[2].whole = true;  // Muon's matrices
  EXPECT_THAT(StreamedGranules(layout), ElementsAre(true, true, false, false, false));
}

TEST(StreamedElements, KeepThePlacesWithinASixteenthOfTheArena) {
  constexpr uint64_t kGranule = uint64_t{1} << 30;
  for (const uint64_t arena : {2 * kMiB, 24 * kMiB, 512 * kMiB}) {
    const uint64_t elements = StreamedElements(kGranule, 14, arena);
    EXPECT_LE(kStreamedPlaces * 14 * elements, arena / 16);
    EXPECT_GT(kStreamedPlaces * 14 * (elements + 1024), arena / 16);
  }
}

TEST(StreamedElements, OfSmallAndLargeArenasAndSmallGranules_HaveTheirLimits) {
  EXPECT_EQ(StreamedElements(1 << 20, 14, 64 << 10), 1024u);
  EXPECT_EQ(StreamedElements(uint64_t{1} << 30, 14, uint64_t{80} << 30), 2u << 20);
  EXPECT_EQ(StreamedElements(500, 14, 64 << 10), 500u);
}

}  // namespace
}  // namespace geminid::zero
