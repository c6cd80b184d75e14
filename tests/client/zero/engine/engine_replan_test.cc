// The engine replans when steps no longer match the plan, by a clock that the test moves.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "client/zero/core/replan.h"
#include "tests/client/zero/engine_fixture.h"

namespace geminid::zero {
namespace {

// So long that the planner's estimate of the link's time is negligible.
constexpr absl::Duration kOperator = absl::Seconds(10);

class EngineReplanTest : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    run_.arena_bytes = 1 << 20;
    run_.options.state_placement = StatePlacement::kHost;
    run_.operator_time = [](int, int) { return kOperator; };
  }

  static std::map<std::string, uint64_t> Replans(const Statistics& statistics) {
    return {statistics.replans_by_cause.begin(), statistics.replans_by_cause.end()};
  }

  using Counts = std::map<std::string, uint64_t>;
  static Counts Count(uint64_t peak, uint64_t order, uint64_t slower, uint64_t faster) {
    return {{"peak", peak}, {"access order", order}, {"slower", slower}, {"faster", faster}};
  }
};

TEST_F(EngineReplanTest, StepsAsPredicted_KeepThePlan) {
  run_.world_size = 2;
  run_.steps = 40;
  for (const Statistics& statistics : MustTrain().statistics) {
    EXPECT_EQ(statistics.plans_made, 1u);
    EXPECT_EQ(Replans(statistics), Count(0, 0, 0, 0));
  }
}

TEST_F(EngineReplanTest, LastingSlowness_IsPlannedForOnce) {
  run_.world_size = 2;
  run_.steps = 60;
  run_.arena_bytes = kTightArena;
  run_.operator_time = [](int, int step) { return step < 20 ? kOperator : 2 * kOperator; };
  const SyntheticResult result = MustTrain();
  for (const Statistics& statistics : result.statistics) {
    EXPECT_EQ(Replans(statistics), Count(0, 0, 1, 0));
  }
  ExpectSameBits(result.weights, TrainDensely(run_));
}

TEST_F(EngineReplanTest, LastingSpeed_IsPlannedForOnceInAccumulatedSteps) {
  run_.steps = 40;
  run_.options.accumulate = 2;
  run_.operator_time = [](int, int step) { return step < 15 ? kOperator : kOperator / 3; };
  const SyntheticResult result = MustTrain();
  EXPECT_EQ(Replans(result.statistics[0]), Count(0, 0, 0, 1));
  ExpectSameBits(result.weights, TrainDensely(run_));
}

TEST_F(EngineReplanTest, SlownessRightAfterTheFirstPlan_IsNotJudgedBeforeTheBackoff) {
  const ReplanOptions options;
  run_.operator_time = [](int, int step) { return step < 1 ? kOperator : 2 * kOperator; };
  // The first step is the sample. Then follow steps that are not judged, and the departures.
  run_.steps = static_cast<int>(options.first_backoff_steps + options.departures_in_a_row);
  EXPECT_EQ(Replans(MustTrain().statistics[0]), Count(0, 0, 0, 0));
  ++run_.steps;
  EXPECT_EQ(Replans(MustTrain().statistics[0]), Count(0, 0, 1, 0));
}

TEST_F(EngineReplanTest, SpeedThatTurnsForEver_IsPlannedForBoundedlyOften) {
  run_.steps = 300;
  run_.model = SyntheticModel{};
  Parameter matrix;
  matrix.name = "matrix";
  matrix.shape = {64, 64};
  run_.model.parameters = {matrix};
  run_.model.operators = {{0}};
  run_.operator_time = [](int, int step) { return step / 5 % 2 == 0 ? kOperator : 4 * kOperator; };
  const Statistics statistics = MustTrain().statistics[0];
  uint64_t replans = 0;
  for (const auto& [cause, count] : statistics.replans_by_cause) replans += count;
  const ReplanOptions options;
  const double most = options.most_backoff_steps;
  EXPECT_GE(replans, 2u);
  EXPECT_LE(static_cast<double>(replans),
            std::log2(most / options.first_backoff_steps) + 2 + 2 * run_.steps / most);
}

TEST_F(EngineReplanTest, OneSlowRank_MakesAllPlanAgain) {
  run_.world_size = 2;
  run_.steps = 40;
  run_.operator_time = [](int rank, int step) {
    return rank == 1 && step >= 15 ? 2 * kOperator : kOperator;
  };
  const SyntheticResult result = MustTrain();
  for (const Statistics& statistics : result.statistics) {
    EXPECT_EQ(Replans(statistics), Count(0, 0, 1, 0));
  }
  ExpectSameBits(result.weights, TrainDensely(run_));
}

TEST_F(EngineReplanTest, Replans_ChangeNoBit) {
  run_.world_size = 2;
  run_.steps = 30;
  run_.options.clip_norm = 1;
  run_.arena_bytes = kTightArena;
  const SyntheticResult calm = MustTrain();
  run_.operator_time = [](int, int step) { return step < 12 ? kOperator : kOperator / 1000000; };
  const SyntheticResult turned = MustTrain();
  EXPECT_EQ(Replans(calm.statistics[0]), Count(0, 0, 0, 0));
  EXPECT_EQ(Replans(turned.statistics[0]).at("faster"), 1u);
  ExpectSameBits(turned.weights, calm.weights);
  for (size_t step = 0; step < calm.steps.size(); ++step) {
    EXPECT_EQ(turned.steps[step].gradient_norm, calm.steps[step].gradient_norm);
  }
}

TEST_F(EngineReplanTest, GrowthOfActivations_IsPlannedForWithAMarginThatDoubles) {
  run_.world_size = 2;
  run_.steps = 12;
  // The peak grows to one, two, three, ... times the first one; the margins are 1, 2 and 4.
  const auto growth = [](int steps_apart) {
    return [steps_apart](int, int step, uint64_t bytes) {
      return bytes * static_cast<uint64_t>(1 + step / steps_apart);
    };
  };
  run_.activation_bytes_at = growth(3);
  const SyntheticResult result = MustTrain();
  for (const Statistics& statistics : result.statistics) {
    // Above 0, 1 and 2. The growth to 4 stays within the margin.
    EXPECT_EQ(Replans(statistics).at("peak"), 3u);
  }
  run_.steps = 15;
  const SyntheticResult more = MustTrain();
  for (const Statistics& statistics : more.statistics) {
    EXPECT_EQ(Replans(statistics).at("peak"), 3u);
    EXPECT_EQ(statistics.plans_made, 4u);
  }
  ExpectSameBits(more.weights, TrainDensely(run_));
}

TEST_F(EngineReplanTest, OperatorsInAnotherOrder_AreCountedAsSuch) {
  run_.steps = 6;
  run_.operators_at = [this](int step) {
    std::vector<std::vector<uint32_t>> operators = run_.model.operators;
    if (step >= 3) std::swap(operators[3], operators[8]);
    return operators;
  };
  EXPECT_EQ(Replans(MustTrain().statistics[0]), Count(0, 1, 0, 0));
}

}  // namespace
}  // namespace geminid::zero
