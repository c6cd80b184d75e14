#include "client/zero/core/director.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace geminid::zero {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Outcome = Director::Outcome;
using State = Director::State;

constexpr uint64_t kBytes = 10;

Move GatherOf(uint32_t chunk) { return {Move::Kind::kGather, chunk}; }
Move PlannedGather(uint32_t chunk, uint64_t offset, std::optional<uint32_t> due = {}) {
  return {Move::Kind::kGather, chunk, offset, due};
}
Move DropOf(uint32_t chunk) { return {Move::Kind::kDrop, chunk}; }
Move ReduceOf(uint32_t chunk) { return {Move::Kind::kReduce, chunk}; }

// The operators are 0, 1, 1 with gradient, 0 with gradient. 0 stays, and 1 is prefetched.
PlannedRun TwoLayers() {
  std::vector<TraceMoment> moments(4);
  moments[0].uses = {{0}};
  moments[1].uses = {{1}};
  moments[2].uses = {{1, true}};
  moments[3].uses = {{0, true}};
  Plan plan;
  plan.moments.resize(4);
  plan.moments[0].loads = {{0, 0, 0}, {1, 10, 1}};
  plan.moments[2].drops = {{1, true, 3}};
  plan.moments[3].drops = {{0, true, 0}};
  return PlannedRun(plan, moments, 0);
}

class DirectorTest : public ::testing::Test {
 protected:
  DirectorTest() : DirectorTest({{kBytes}, {kBytes}, {kBytes}}) {}
  explicit DirectorTest(std::vector<Director::Chunk> chunks) : director_(std::move(chunks)) {}

  Moves Use(std::vector<uint32_t> chunks, bool evaluate = false) {
    const Moves moves = director_.BeginOperator(evaluate, chunks);
    for (uint32_t chunk : chunks) director_.Release(chunk);
    return moves;
  }
  Moves Reduce(uint32_t chunk) {
    director_.NoteGradient(chunk);
    return director_.Reduce(chunk);
  }
  void RunAsPlanned() {
    (void)director_.BeginMicroBatch();
    (void)Use({0});
    (void)Use({1});
    (void)Use({1});
    (void)Reduce(1);
    (void)Use({0});
    (void)Reduce(0);
    (void)director_.EndOperators();
    (void)director_.EndMicroBatch();
  }

  Director director_;
};

TEST_F(DirectorTest, WithoutAPlan_GathersWhatIsNeededAndDropsWhatIsNot) {
  EXPECT_THAT(director_.BeginMicroBatch(), IsEmpty());
  EXPECT_EQ(director_.state(), State::kSampling);
  EXPECT_THAT(Use({0, 1}), ElementsAre(GatherOf(0), GatherOf(1)));
  EXPECT_THAT(Use({1, 2}), ElementsAre(DropOf(0), GatherOf(2)));
  EXPECT_THAT(Reduce(2), ElementsAre(ReduceOf(2)));
  EXPECT_THAT(director_.EndOperators(), IsEmpty());
  EXPECT_THAT(director_.EndMicroBatch(), ElementsAre(DropOf(1)));
  EXPECT_EQ(director_.outcome(), Outcome::kSampled);
  EXPECT_TRUE(director_.wants_plan());
}

TEST_F(DirectorTest, HeldChunk_IsNeededByEveryOperatorMeanwhile) {
  (void)director_.BeginMicroBatch();
  (void)director_.BeginOperator(false, std::vector<uint32_t>{0});
  EXPECT_THAT(Use({1}), ElementsAre(GatherOf(1)));
  EXPECT_THAT(Use({2}), ElementsAre(DropOf(1), GatherOf(2)));
  director_.Release(0);
  EXPECT_THAT(Use({2}), ElementsAre(DropOf(0)));
  const std::vector<Moment> moments = director_.training_recorder().Moments();
  EXPECT_EQ(moments[1].uses.size(), 2u);
  EXPECT_EQ(moments[3].uses.size(), 1u);
}

TEST_F(DirectorTest, Plan_IsFollowedOverAndOver) {
  (void)director_.PutInForce(TwoLayers());
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(director_.BeginMicroBatch(), IsEmpty());
    EXPECT_EQ(director_.state(), State::kFollowing);
    EXPECT_THAT(Use({0}), ElementsAre(PlannedGather(0, 0), PlannedGather(1, 10, 1)));
    EXPECT_THAT(Use({1}), IsEmpty());
    EXPECT_THAT(Use({1}), IsEmpty());
    EXPECT_THAT(Reduce(1), ElementsAre(ReduceOf(1)));
    EXPECT_THAT(Use({0}), IsEmpty());
    EXPECT_THAT(Reduce(0), ElementsAre(ReduceOf(0)));
    EXPECT_THAT(director_.EndOperators(), IsEmpty());
    EXPECT_THAT(director_.EndMicroBatch(), IsEmpty());
    EXPECT_EQ(director_.outcome(), Outcome::kFollowed);
    EXPECT_FALSE(director_.wants_plan());
  }
}

TEST_F(DirectorTest, OperatorsThatUseLessThanPlanned_LeaveNothingInTheWay) {
  (void)director_.PutInForce(TwoLayers());
  (void)director_.BeginMicroBatch();
  (void)Use({0});
  (void)Use({1});
  (void)Use({});
  // Chunk 1 was to become a gradient here, but the plan gives its place away.
  EXPECT_THAT(Use({0}), ElementsAre(DropOf(1)));
  (void)Reduce(0);
  (void)director_.EndOperators();
  (void)director_.EndMicroBatch();
  EXPECT_EQ(director_.outcome(), Outcome::kFollowed);
}

TEST_F(DirectorTest, OtherOperatorsThanPlanned_AreCarriedOutOnDemandAndKeepThePlan) {
  (void)director_.PutInForce(TwoLayers());
  (void)director_.BeginMicroBatch();
  (void)Use({0});
  EXPECT_THAT(Use({2}), ElementsAre(DropOf(0), DropOf(1), GatherOf(2)));
  EXPECT_EQ(director_.state(), State::kDeviated);
  (void)director_.EndOperators();
  EXPECT_THAT(director_.EndMicroBatch(), ElementsAre(DropOf(2)));
  EXPECT_EQ(director_.outcome(), Outcome::kDeviated);
  RunAsPlanned();
  EXPECT_EQ(director_.outcome(), Outcome::kFollowed);
}

TEST_F(DirectorTest, FewerOperatorsThanPlanned_AreADeviation) {
  (void)director_.PutInForce(TwoLayers());
  (void)director_.BeginMicroBatch();
  (void)Use({0});
  (void)director_.EndOperators();
  EXPECT_THAT(director_.EndMicroBatch(), ElementsAre(DropOf(0), DropOf(1)));
  EXPECT_EQ(director_.outcome(), Outcome::kDeviated);
}

TEST_F(DirectorTest, PlaceThatAHeldChunkHasNotGivenUp_IsNotGivenToAnother) {
  std::vector<TraceMoment> moments(2);
  moments[0].uses = {{0}};
  moments[1].uses = {{0}, {1}};
  Plan plan;
  plan.moments.resize(2);
  plan.moments[0].loads = {{0, 0, 0}};
  plan.moments[0].drops = {{0, false, 1}};
  plan.moments[1].loads = {{1, 0, 1}};
  (void)director_.PutInForce(PlannedRun(plan, moments, 0));
  (void)director_.BeginMicroBatch();
  (void)director_.BeginOperator(false, std::vector<uint32_t>{0});
  EXPECT_THAT(Use({1}), ElementsAre(GatherOf(1))) << "wherever there is room";
  EXPECT_EQ(director_.state(), State::kDeviated);
}

TEST_F(DirectorTest, EvaluationWithinAMicroBatch_LeadsBackIntoThePlan) {
  (void)director_.PutInForce(TwoLayers());
  (void)director_.BeginMicroBatch();
  (void)Use({0});
  EXPECT_THAT(Use({2}, true), ElementsAre(DropOf(0), DropOf(1), GatherOf(2)));
  EXPECT_TRUE(director_.in_micro_batch());
  EXPECT_THAT(Use({1}), ElementsAre(DropOf(2), PlannedGather(1, 10, 1), PlannedGather(0, 0, 3)))
      << "what is needed first comes first";
  EXPECT_EQ(director_.state(), State::kFollowing);
}

TEST_F(DirectorTest, EvaluationOfWhatIsThere_MovesNothing) {
  (void)director_.PutInForce(TwoLayers());
  (void)director_.BeginMicroBatch();
  (void)Use({0});
  EXPECT_THAT(Use({1}, true), IsEmpty());
  EXPECT_THAT(Use({1}), IsEmpty());
  EXPECT_EQ(director_.state(), State::kFollowing);
}

TEST_F(DirectorTest, EvaluationThatComesRound_IsASampleOfOneRound) {
  for (int round = 0; round < 2; ++round) {
    for (uint32_t chunk : {0, 1, 0, 2}) {
      EXPECT_THAT(director_.TakeEvaluationSample(false), IsEmpty());
      (void)Use({chunk}, true);
    }
  }
  const std::vector<Moment> sample = director_.TakeEvaluationSample(false);
  ASSERT_EQ(sample.size(), 4u);
  EXPECT_THAT(sample[3].uses, ElementsAre(Moment::Use{2, false}));
}

TEST_F(DirectorTest, EvaluationPlan_LivesBesideTraining) {
  std::vector<TraceMoment> moments(2);
  moments[0].uses = {{1}};
  moments[1].uses = {{2}};
  Plan plan;
  plan.moments.resize(2);
  plan.resident_at_start = {{1, 0}, {2, 10}};
  (void)director_.PutInForce(TwoLayers());
  director_.SetEvaluationPlan(PlannedRun(plan, moments, 0));
  EXPECT_THAT(Use({1}, true), ElementsAre(PlannedGather(1, 0, 0), PlannedGather(2, 10, 1)));
  EXPECT_EQ(director_.state(), State::kEvaluatingByPlan);
  EXPECT_THAT(Use({2}, true), IsEmpty());
  EXPECT_THAT(Use({1}, true), IsEmpty());
  RunAsPlanned();
  EXPECT_EQ(director_.outcome(), Outcome::kFollowed);
  EXPECT_THAT(director_.EndMicroBatch(), IsEmpty());
}

TEST_F(DirectorTest, PlanThatMovesWhatOperatorsKeepHolding_IsFoundOut) {
  (void)director_.BeginMicroBatch();
  (void)director_.BeginOperator(false, std::vector<uint32_t>{0});
  (void)Use({1});
  director_.Release(0);
  (void)Use({0});
  const std::vector<Moment> moments = director_.training_recorder().Moments();
  EXPECT_THAT(moments[1].kept, ElementsAre(0));
  EXPECT_THAT(moments[2].kept, IsEmpty());

  std::vector<TraceMoment> trace(3);
  for (size_t m = 0; m < 3; ++m) {
    for (const Moment::Use& use : moments[m].uses) trace[m].uses.push_back({use.chunk});
  }
  Plan plan;
  plan.moments.resize(3);
  plan.moments[0].loads = {{0, 0, 0}};
  plan.moments[1] = {.loads = {{1, 10, 1}}, .drops = {{1, false, 2}}};
  EXPECT_FALSE(MovesHeldChunks(PlannedRun(plan, trace, 0), moments));
  // Between the last two moments no operator holds the chunk, so it may move.
  plan.moments[1].drops.push_back({0, false, 2});
  plan.moments[2].loads = {{0, 20, 2}};
  EXPECT_FALSE(MovesHeldChunks(PlannedRun(plan, trace, 0), moments));
  plan.moments[0].drops = {{0, false, 1}};
  plan.moments[1].loads.push_back({0, 20, 1});
  EXPECT_TRUE(MovesHeldChunks(PlannedRun(plan, trace, 0), moments));
}

TEST_F(DirectorTest, ChangedWeights_LeaveNothingOfAnEvaluation) {
  (void)Use({1}, true);
  EXPECT_THAT(director_.ChangeWeights(), ElementsAre(DropOf(1)));
  EXPECT_THAT(Use({1}, true), ElementsAre(GatherOf(1)));
}

TEST_F(DirectorTest, OperatorsThatChangeEveryTime_ArePlannedForEverMoreRarely) {
  (void)director_.PutInForce(TwoLayers());
  int plans = 0;
  for (int i = 0; i < 100; ++i) {
    (void)director_.BeginMicroBatch();
    (void)Use({2});
    (void)director_.EndOperators();
    (void)director_.EndMicroBatch();
    plans += director_.wants_plan() ? 1 : 0;
  }
  EXPECT_GE(plans, 2);
  EXPECT_LE(plans, 8);
}

TEST_F(DirectorTest, CancelledMicroBatch_GivesUpItsGradients) {
  (void)director_.BeginMicroBatch();
  (void)Use({0});
  director_.NoteGradient(0);
  EXPECT_THAT(director_.CancelMicroBatch(), ElementsAre(DropOf(0)));
  EXPECT_EQ(director_.state(), State::kIdle);
  EXPECT_THAT(director_.BeginMicroBatch(), IsEmpty());
}

TEST(DirectorWithGradients, SeparateGradient_IsOpenedAndNotGathered) {
  Director director({{kBytes}, {kBytes, true}});
  (void)director.BeginMicroBatch();
  EXPECT_THAT(director.BeginOperator(false, std::vector<uint32_t>{0, 1}),
              ElementsAre(GatherOf(0), Move{Move::Kind::kOpen, 1}));
  director.NoteGradient(1);
  director.Release(0);
  director.Release(1);
  EXPECT_THAT(director.OpenGradient(1, true), IsEmpty()) << "it stays until it is reduced";
  EXPECT_THAT(director.Reduce(1), ElementsAre(ReduceOf(1)));
}

TEST(DirectorWithGradients, GradientAfterAReducedOne_BeginsAMomentThatDoesNotUseThatOne) {
  Director director({{kBytes}, {kBytes, true}, {kBytes, true}, {kBytes, true}});
  (void)director.BeginMicroBatch();
  (void)director.BeginOperator(false, std::vector<uint32_t>{0});
  for (const uint32_t gradient : {1, 2, 3}) {
    (void)director.OpenGradient(gradient, true);
    director.NoteGradient(gradient);
    // The second operator stays open beside the third.
    if (gradient != 2) (void)director.Reduce(gradient);
  }
  (void)director.Reduce(2);
  std::vector<std::vector<uint32_t>> used;
  for (const Moment& moment : director.training_recorder().Moments()) {
    used.emplace_back();
    for (const Moment::Use& use : moment.uses) used.back().push_back(use.chunk);
  }
  using Uses = std::vector<uint32_t>;
  EXPECT_THAT(used, ElementsAre(Uses{0, 1}, Uses{0, 2, 3}));
}

// The ranks of a host have copies of chunk 0, which is trained, and of chunk 1, which is frozen.
// They have no copy of chunk 2.
class CopiedTest : public DirectorTest {
 protected:
  CopiedTest()
      : DirectorTest({{.bytes = kBytes, .copied = true},
                      {.bytes = kBytes, .changes = false, .copied = true},
                      {.bytes = kBytes}}) {}
  static Move GatherWithinHost(uint32_t chunk) {
    return {.kind = Move::Kind::kGather, .chunk = chunk, .within_host = true};
  }
  void EndMicroBatch() {
    (void)director_.EndOperators();
    (void)director_.EndMicroBatch();
  }
};

TEST_F(CopiedTest, SecondGather_IsWithinTheHostUntilTheWeightsChange) {
  (void)director_.BeginMicroBatch();
  EXPECT_THAT(Use({0, 1}), ElementsAre(GatherOf(0), GatherOf(1)));
  EXPECT_THAT(Use({2}), ElementsAre(DropOf(0), DropOf(1), GatherOf(2)));
  EXPECT_THAT(Use({0}), ElementsAre(DropOf(2), GatherWithinHost(0)));
  EndMicroBatch();
  (void)director_.BeginMicroBatch();
  EXPECT_THAT(Use({0, 1, 2}), ElementsAre(GatherWithinHost(0), GatherWithinHost(1), GatherOf(2)));
  EndMicroBatch();
  (void)director_.ChangeWeights();
  (void)director_.BeginMicroBatch();
  EXPECT_THAT(Use({0, 1, 2}), ElementsAre(GatherOf(0), GatherWithinHost(1), GatherOf(2)));
}

TEST_F(CopiedTest, AllValuesWritten_AreGatheredOverAllRanks) {
  (void)Use({0, 1}, /*evaluate=*/true);
  (void)director_.DropAll();
  EXPECT_THAT(Use({0, 1}, /*evaluate=*/true), ElementsAre(GatherOf(0), GatherOf(1)));
}

TEST_F(CopiedTest, EvaluationAndAMicroBatchGivenUp_LeaveTheCopies) {
  (void)director_.BeginMicroBatch();
  (void)Use({0});
  (void)director_.CancelMicroBatch();
  EXPECT_THAT(Use({0}, /*evaluate=*/true), ElementsAre(GatherWithinHost(0)));
  (void)director_.BeginMicroBatch();
  EXPECT_THAT(Use({2}), ElementsAre(DropOf(0), GatherOf(2)));
  EXPECT_THAT(Use({0}), ElementsAre(DropOf(2), GatherWithinHost(0)));
}

// After the reduction, the gradient that took its weight's place is gone. The host's copy of the
// weight is not.
TEST_F(CopiedTest, WeightWhoseGradientWasReduced_IsGatheredWithinTheHost) {
  (void)director_.BeginMicroBatch();
  (void)Use({0});
  (void)Reduce(0);
  EndMicroBatch();
  (void)director_.BeginMicroBatch();
  EXPECT_THAT(Use({0}), ElementsAre(GatherWithinHost(0)));
}

// A copy of the weights alone can be dropped and gathered again, and nothing else.
TEST_F(DirectorTest, ChunkWithWeightsAlone_CanBeGatheredAgain) {
  (void)director_.BeginMicroBatch();
  EXPECT_FALSE(director_.CanGatherAgain(0)) << "it is not on the device";
  (void)Use({0});
  EXPECT_TRUE(director_.CanGatherAgain(0));
  director_.NoteGradient(0);
  EXPECT_FALSE(director_.CanGatherAgain(0));
  (void)director_.OpenGradient(1, /*planned=*/false);
  EXPECT_FALSE(director_.CanGatherAgain(1)) << "it began as zeros";
}

class DirectorOfOtherChunksTest : public DirectorTest {
 protected:
  DirectorOfOtherChunksTest()
      : DirectorTest({{.bytes = kBytes, .stays = true},
                      {.bytes = kBytes, .copied = true},
                      {.bytes = kBytes, .is_gradient = true}}) {}
};

TEST_F(DirectorOfOtherChunksTest, ChunksWhoseGathersAreCounted_AreNotGatheredAgain) {
  (void)director_.BeginMicroBatch();
  (void)Use({0, 1, 2});
  for (uint32_t chunk = 0; chunk < 3; ++chunk) EXPECT_FALSE(director_.CanGatherAgain(chunk));
}

}  // namespace
}  // namespace geminid::zero
