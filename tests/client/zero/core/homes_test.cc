#include "client/zero/core/homes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "client/zero/core/director.h"

namespace geminid::zero {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;
using Outcome = Director::Outcome;

constexpr uint64_t kBytes = 10;

// Three chunks and two moments. The second moment needs workspace.
Trace TraceIn(uint64_t arena_bytes, uint64_t workspace_bytes) {
  Trace trace;
  trace.arena_bytes = arena_bytes;
  trace.chunks.resize(3);
  for (TraceChunk& chunk : trace.chunks) chunk.device_bytes = kBytes;
  trace.moments.resize(2);
  trace.moments[1].workspace_bytes = workspace_bytes;
  return trace;
}

TEST(Homes, ArenaForAllChunksAndTheMostWorkspace_LieBesideEachOther) {
  EXPECT_THAT(HomesOf(TraceIn(50, 20)), Optional(ElementsAre(0, kBytes, 2 * kBytes)));
}

TEST(Homes, ArenaThatIsOneByteTooSmall_AreNone) {
  EXPECT_EQ(HomesOf(TraceIn(49, 20)), std::nullopt);
}

Move GatherOf(uint32_t chunk) { return {Move::Kind::kGather, chunk, chunk * kBytes}; }
Move DropOf(uint32_t chunk) { return {Move::Kind::kDrop, chunk}; }

// Chunks 0 and 1 are trained. Each is used in one moment of the plan, and dropped at its end. Chunk
// 2 is frozen and only evaluated.
class DirectorWithHomes : public ::testing::Test {
 protected:
  DirectorWithHomes() : director_({{kBytes}, {kBytes}, {.bytes = kBytes, .changes = false}}) {
    std::vector<TraceMoment> moments(2);
    moments[0].uses = {{0}};
    moments[1].uses = {{1}};
    Plan plan;
    plan.moments.resize(2);
    // The planner saves room without need: it puts both chunks at the bottom.
    plan.moments[0].loads = {{0, 0, 0}};
    plan.moments[0].drops = {{0, false, 0}};
    plan.moments[1].loads = {{1, 0, 1}};
    plan.moments[1].drops = {{1, false, 0}};
    PlannedRun run(plan, moments, 0);
    run.PlaceAtHome({0, kBytes, 2 * kBytes});
    (void)director_.PutInForce(std::move(run));
  }

  Moves Use(std::vector<uint32_t> chunks, bool evaluate = false) {
    const Moves moves = director_.BeginOperator(evaluate, chunks);
    for (uint32_t chunk : chunks) director_.Release(chunk);
    return moves;
  }
  // All moves of a micro-batch, from its beginning to its end.
  Moves MicroBatch(const std::vector<uint32_t>& chunks) {
    Moves all = director_.BeginMicroBatch();
    const auto add = [&all](const Moves& moves) {
      all.insert(all.end(), moves.begin(), moves.end());
    };
    for (uint32_t chunk : chunks) add(Use({chunk}));
    add(director_.EndOperators());
    add(director_.EndMicroBatch());
    return all;
  }

  Director director_;
};

TEST_F(DirectorWithHomes, Weights_ComeOnceAfterEachUpdateAndFrozenOnesOnce) {
  EXPECT_THAT(Use({2}, /*evaluate=*/true), ElementsAre(GatherOf(2)));
  EXPECT_THAT(MicroBatch({0, 1}), ElementsAre(GatherOf(0), GatherOf(1)));
  EXPECT_EQ(director_.outcome(), Outcome::kFollowed);
  EXPECT_THAT(director_.there_at_start(), IsEmpty());
  EXPECT_THAT(MicroBatch({0, 1}), IsEmpty());
  EXPECT_THAT(director_.there_at_start(), ElementsAre(0, 1));
  EXPECT_THAT(director_.ChangeWeights(), ElementsAre(DropOf(0), DropOf(1)));
  EXPECT_THAT(Use({0}, /*evaluate=*/true), ElementsAre(GatherOf(0)));
  EXPECT_THAT(Use({2}, /*evaluate=*/true), IsEmpty());
  EXPECT_THAT(MicroBatch({0, 1}), ElementsAre(GatherOf(1)));
  EXPECT_EQ(director_.outcome(), Outcome::kFollowed);
}

TEST_F(DirectorWithHomes, MicroBatchThatLeavesThePlan_DropsNothing) {
  EXPECT_THAT(MicroBatch({1, 2, 0}), ElementsAre(GatherOf(1), GatherOf(2), GatherOf(0)));
  EXPECT_EQ(director_.outcome(), Outcome::kDeviated);
  EXPECT_THAT(MicroBatch({0, 1}), IsEmpty());
  EXPECT_EQ(director_.outcome(), Outcome::kFollowed);
}

TEST_F(DirectorWithHomes, GradientInTheWeightsPlace_IsNotTakenForWeightsWhenItIsGivenUp) {
  (void)director_.BeginMicroBatch();
  (void)Use({0});
  director_.NoteGradient(0);
  EXPECT_THAT(director_.CancelMicroBatch(), ElementsAre(DropOf(0)));
  EXPECT_THAT(MicroBatch({0, 1}), ElementsAre(GatherOf(0), GatherOf(1)));
}

// An operator wrote a part of its gradient over the weights, and failed.
TEST_F(DirectorWithHomes, GradientThatWasBegunAndGivenUp_IsNotTakenForWeights) {
  (void)MicroBatch({0, 1});
  (void)director_.BeginMicroBatch();
  (void)Use({0});
  director_.NoteOverwritten(0);
  EXPECT_THAT(director_.CancelMicroBatch(), ElementsAre(DropOf(0)));
  (void)director_.BeginMicroBatch();
  EXPECT_THAT(Use({0}), ElementsAre(GatherOf(0)));
  EXPECT_THAT(director_.CancelMicroBatch(), IsEmpty()) << "these are weights again";
}

TEST_F(DirectorWithHomes, ZerosForAGradientThatNeverCame_AreNotTakenForWeights) {
  (void)director_.BeginMicroBatch();
  EXPECT_THAT(director_.OpenGradient(0, /*planned=*/false),
              ElementsAre(Move{Move::Kind::kOpen, 0, 0}));
  EXPECT_THAT(director_.CancelMicroBatch(), ElementsAre(DropOf(0)));
}

TEST_F(DirectorWithHomes, AllValuesWritten_DropsAllCopies) {
  (void)MicroBatch({0, 1});
  (void)Use({2}, /*evaluate=*/true);
  EXPECT_THAT(director_.DropAll(), ElementsAre(DropOf(0), DropOf(1), DropOf(2)));
}

TEST_F(DirectorWithHomes, Evaluation_NeedsNoPlanOfItsOwn) {
  for (int round = 0; round < 8; ++round) {
    EXPECT_THAT(director_.TakeEvaluationSample(/*end=*/false), IsEmpty());
    (void)Use({0}, /*evaluate=*/true);
    (void)Use({2}, /*evaluate=*/true);
  }
  EXPECT_THAT(director_.TakeEvaluationSample(/*end=*/true), IsEmpty());
}

TEST_F(DirectorWithHomes, PlanWithoutHomes_DropsWhatItDoesNotKeep) {
  (void)Use({2}, /*evaluate=*/true);
  PlannedRun run(director_.training_plan()->plan(), director_.training_plan()->moments(), 0);
  EXPECT_THAT(director_.PutInForce(std::move(run)), ElementsAre(DropOf(2)));
}

}  // namespace
}  // namespace geminid::zero
