#include "training/goodput/follow_noise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

namespace geminid::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kBatch = 8;
constexpr uint64_t kRanks = 2;

// A sample with |G|^2 = `square`, and the variance `noise` of one sequence.
NoiseSample SampleOf(double noise, uint64_t micro_batches, double square = 1) {
  const double n = static_cast<double>(kRanks * micro_batches);
  const double each = static_cast<double>(kBatch) / kRanks;
  return {.gradients = kRanks * micro_batches,
          .sequences = each,
          .mean_square = square + noise / each,
          .square_of_mean = square + noise / (n * each)};
}

// A run whose steps measure the given values.
class FollowingRun {
 public:
  FollowingRun(uint64_t least, uint64_t most, double update_cost, uint64_t first = 0)
      : rules_{.batch = kBatch, .least = least, .most = most} {
    state_.sequences = kBatch * (first == 0 ? least : first);
    state_.update_cost = static_cast<float>(update_cost);
  }

  // The numbers of micro-batches of the steps, in order, without repetitions.
  std::vector<uint64_t> Steps(int count, double noise, double spread = 0) {
    std::vector<uint64_t> numbers = {MicroBatchesOf(rules_, state_)};
    for (int i = 0; i < count; ++i) {
      const double square = 1 + (step_ % 2 == 0 ? spread : -spread);
      ++step_;
      const BatchDecision followed = Follow(
          rules_, state_, step_, SampleOf(noise, MicroBatchesOf(rules_, state_), square), {});
      state_ = followed.state;
      if (!followed.change) continue;
      changes_.push_back(*followed.change);
      numbers.push_back(MicroBatchesOf(rules_, state_));
    }
    return numbers;
  }

  const std::vector<BatchChange>& changes() const { return changes_; }
  const FollowState& state() const { return state_; }
  const FollowRules& rules() const { return rules_; }

 private:
  FollowRules rules_;
  FollowState state_;
  uint64_t step_ = 0;
  std::vector<BatchChange> changes_;
};

// Goodput has its maximum at the root of cost times noise scale: sqrt(16 * 64) sequences.
TEST(FollowNoise, OfANoiseScaleThatStays_EndsAtTheMostGoodput) {
  FollowingRun from_below(1, 64, 16);
  EXPECT_THAT(from_below.Steps(200, 64), ElementsAre(1, 2, 4));
  FollowingRun from_above(1, 64, 16, /*first=*/32);
  EXPECT_THAT(from_above.Steps(200, 64), ElementsAre(32, 16, 8, 4));
}

TEST(FollowNoise, OfAnyRun_ChangesAtReviewsAloneAndAtMostByTwo) {
  FollowingRun run(1, 1000, 1000);
  run.Steps(200, 1e6);
  ASSERT_EQ(run.changes().size(), 10u);  // 1 to 512, and the bound
  uint64_t from = 1;
  for (size_t i = 0; i < run.changes().size(); ++i) {
    EXPECT_EQ(run.changes()[i].step, kReviewEvery * (i + 1));
    EXPECT_EQ(run.changes()[i].from, from);
    from = run.changes()[i].to;
    EXPECT_LE(from, 2 * run.changes()[i].from);
  }
  EXPECT_EQ(from, 1000u);
}

TEST(FollowNoise, OfAnyNoise_StaysWithinTheBounds) {
  FollowingRun large(2, 3, 1000);
  EXPECT_THAT(large.Steps(200, 1e6), ElementsAre(2, 3));
  FollowingRun small(2, 64, 1e-3, /*first=*/16);
  EXPECT_THAT(small.Steps(200, 1e-3), ElementsAre(16, 8, 4, 2));
}

// Twice as many sequences gain 5 % at a noise scale of (12.6 - 8) / (1 - 0.7875) = 21.65.
TEST(FollowNoise, OfAGainBelowTheLeast_ChangesNothing) {
  FollowingRun below(1, 2, 8);
  EXPECT_THAT(below.Steps(64, 21.6), ElementsAre(1));
  FollowingRun above(1, 2, 8);
  EXPECT_THAT(above.Steps(64, 21.7), ElementsAre(1, 2));
  EXPECT_NEAR(above.changes()[0].gain, 0.0503, 2e-4);
}

// With 16 samples whose squared length varies by 0.8, the range is 25 / 1.41 to 25 / 0.59.
TEST(FollowNoise, OfARangeWhoseLowEndGainsTooLittle_WaitsUntilItIsNarrow) {
  FollowingRun exact(1, 2, 8);
  EXPECT_THAT(exact.Steps(16, 25), ElementsAre(1, 2));
  FollowingRun wide(1, 2, 8);
  EXPECT_THAT(wide.Steps(16, 25, /*spread=*/0.8), ElementsAre(1));
  EXPECT_THAT(wide.Steps(100, 25, /*spread=*/0.1), ElementsAre(1, 2));
}

TEST(FollowNoise, OfARangeWithoutUpperEnd_ChangesNothing) {
  FollowingRun run(1, 64, 1000);
  EXPECT_THAT(run.Steps(16, 1e6, /*spread=*/3), ElementsAre(1));
  EXPECT_THAT(run.changes(), IsEmpty());
}

TEST(FollowNoise, OfAnUnknownUpdateCost_AsksAtReviewsAndKeepsTheFirstAnswer) {
  const FollowRules rules = {.batch = kBatch, .least = 1, .most = 64};
  FollowState state = {.sequences = kBatch};
  for (uint64_t step = 1; step <= 64; ++step) {
    const bool asks = NeedsUpdateCost(state, step);
    EXPECT_EQ(asks, step == 16 || step == 32) << step;
    // At the first review there is no timing yet.
    const std::optional<double> cost =
        step == 16 ? std::nullopt : std::optional(step == 32 ? 16.0 : 1e6);
    const BatchDecision followed = Follow(rules, state, step, SampleOf(64, 1), cost);
    EXPECT_EQ(followed.change.has_value(), step == 32 || step == 48) << step;
    state = followed.state;
  }
  EXPECT_EQ(state.update_cost, 16);
  EXPECT_EQ(MicroBatchesOf(rules, state), 4u);
}

TEST(FollowNoise, OfAnUpdateThatTookNoTime_KnowsThatItIsMeasured) {
  const FollowRules rules = {.batch = kBatch, .least = 1, .most = 64};
  const BatchDecision followed = Follow(rules, {.sequences = kBatch}, 16, SampleOf(64, 1), 0.0);
  EXPECT_FALSE(NeedsUpdateCost(followed.state, 32));
}

TEST(FollowNoise, OfStepsThatOverflowOrHaveOneGradient_LearnsNothing) {
  const FollowRules rules = {.batch = kBatch, .least = 1, .most = 64};
  const FollowState state = {.sequences = kBatch, .update_cost = 16};
  NoiseSample infinite = SampleOf(64, 1);
  infinite.mean_square = std::numeric_limits<double>::infinity();
  NoiseSample one = SampleOf(64, 1);
  one.gradients = 1;
  for (const NoiseSample& sample : {infinite, one, NoiseSample{}}) {
    EXPECT_EQ(Follow(rules, state, 16, sample, {}).state, state);
  }
}

// Every step converts the state to its words and back. A meter of doubles runs in parallel.
TEST(FollowNoise, OfAStateThatIsSavedAndLoaded_IsTheSameToTheBit) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> noise(10, 90), square(0.5, 1.5);
  const FollowRules rules = {.batch = kBatch, .least = 1, .most = 64};
  FollowState state = {.sequences = kBatch, .update_cost = 11.7f};
  NoiseMeter exact;
  for (uint64_t step = 1; step <= 1000; ++step) {
    const NoiseSample sample =
        SampleOf(noise(random), MicroBatchesOf(rules, state), square(random));
    exact.Add(sample);
    state = Follow(rules, state, step, sample, {}).state;
    const std::optional<FollowState> loaded = StateOf(WordsOf(state));
    ASSERT_TRUE(loaded.has_value());
    ASSERT_EQ(*loaded, state);
    const auto estimate = NoiseMeter(loaded->noise).Estimate(), expected = exact.Estimate();
    ASSERT_EQ(estimate.has_value(), expected.has_value()) << step;
    if (!estimate) continue;
    ASSERT_NEAR(estimate->sequences, expected->sequences, 1e-4 * expected->sequences);
    ASSERT_NEAR(estimate->low, expected->low, 1e-4 * expected->low);
  }
  EXPECT_EQ(state.noise.samples, 1000u);
}

TEST(FollowNoise, OfWordsThatNoRunHasSaved_HasNoState) {
  EXPECT_FALSE(StateOf({0, 0, 0}).has_value());
  EXPECT_FALSE(StateOf({640, 0, 0}).has_value());
  FollowState state = {.sequences = uint64_t{1} << 36};
  EXPECT_EQ(StateOf(WordsOf(state)), state);
  state.update_cost = -1;
  EXPECT_FALSE(StateOf(WordsOf(state)).has_value());
}

TEST(FollowNoise, OfAStateWithOtherMicroBatches_HasTheNearestNumberWithinTheBounds) {
  const FollowState state = {.sequences = 48};
  EXPECT_EQ(MicroBatchesOf({.batch = 8, .least = 1, .most = 64}, state), 6u);
  EXPECT_EQ(MicroBatchesOf({.batch = 32, .least = 1, .most = 64}, state), 2u);
  EXPECT_EQ(MicroBatchesOf({.batch = 8, .least = 1, .most = 4}, state), 4u);
  EXPECT_EQ(MicroBatchesOf({.batch = 8, .least = 10, .most = 64}, state), 10u);
}

TEST(RateFactorOf, TheSquareRoot_IsThatOfTheGrowth) {
  const FollowRules rules = {.batch = kBatch, .least = 2, .most = 64};
  EXPECT_DOUBLE_EQ(RateFactorOf(rules, {}, 16), 1);
  EXPECT_DOUBLE_EQ(RateFactorOf(rules, {}, 64), 2);
  EXPECT_DOUBLE_EQ(RateFactorOf(rules, {}, 4), 0.5);
}

// (64 / 8 + 1) / (64 / 32 + 1).
TEST(RateFactorOf, AdaScale_IsItsGainAndTheGrowthWhereAllIsNoise) {
  const FollowRules rules = {.batch = 8, .least = 1, .most = 64, .rule = RateRule::kAdaScale};
  FollowState state = {.sequences = 32, .noise = {.samples = 9, .gradient_square = 2}};
  state.noise.gradient_variance = 128;
  EXPECT_DOUBLE_EQ(RateFactorOf(rules, state, 32), 3);
  EXPECT_DOUBLE_EQ(RateFactorOf(rules, state, 8), 1);
  state.noise.gradient_square = -1;
  EXPECT_DOUBLE_EQ(RateFactorOf(rules, state, 32), 4);
  state.noise = {.samples = 9, .gradient_square = 2, .gradient_variance = -1};
  EXPECT_DOUBLE_EQ(RateFactorOf(rules, state, 32), 1);
}

TEST(ChangeWords, OfAChange_HaveBothNumbersAndTheReasons) {
  FollowingRun run(1, 64, 16);
  run.Steps(16, 64);
  ASSERT_EQ(run.changes().size(), 1u);
  const std::string words = ChangeWords(run.changes()[0]);
  EXPECT_THAT(words, HasSubstr("after step 16: steps of 2 x 8 sequences instead of 1 x 8"));
  EXPECT_THAT(words, HasSubstr("noise scale is 64 sequences (64 to 64)"));
  EXPECT_THAT(words, HasSubstr("--lr times 1.41 by the square root rule"));
}

TEST(WriteAutoBatchReport, OfARun_HasItsBoundsStepsAndChanges) {
  FollowingRun run(1, 64, 16);
  run.Steps(32, 64);
  base::JsonWriter json;
  WriteAutoBatchReport(json, {.rules = run.rules(),
                              .state = run.state(),
                              .steps = 40,
                              .sequences_done = 384,
                              .step_micro_batches = {1, 2},
                              .changes = run.changes()});
  const nlohmann::json written = nlohmann::json::parse(json.text());
  EXPECT_EQ(written["least"], 1);
  EXPECT_EQ(written["most"], 64);
  EXPECT_EQ(written["micro_batches"], 4);
  EXPECT_EQ(written["update_cost"], 16);
  EXPECT_EQ(written["learning_rate_factor"], 2);
  EXPECT_EQ(written["sequences_done"], 384);
  EXPECT_EQ(written["step_micro_batches"], nlohmann::json({1, 2}));
  ASSERT_EQ(written["changes"].size(), 2u);
  EXPECT_EQ(written["changes"][1]["step"], 32);
  EXPECT_EQ(written["changes"][1]["from"], 2);
  EXPECT_EQ(written["changes"][1]["to"], 4);
  EXPECT_EQ(written["changes"][1]["sequences_per_step"], 32);
  EXPECT_NEAR(written["changes"][1]["gain"].get<double>(), 1.0 / 9, 1e-3);
}

}  // namespace
}  // namespace geminid::trainer
