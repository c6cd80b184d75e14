#include "training/goodput/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace geminid::trainer {
namespace {

using testing::HasSubstr;

// A meter with |G|^2 = 1, the variance `noise`, and no spread.
NoiseMeter MeterOf(double noise, int steps = 100) {
  NoiseMeter meter;
  for (int step = 0; step < steps; ++step) {
    meter.Add({.gradients = 2,
               .sequences = 1,
               .mean_square = 1 + noise,
               .square_of_mean = 1 + noise / 2});
  }
  return meter;
}

nlohmann::json JsonOf(const BatchAdvice& advice) {
  base::JsonWriter json;
  WriteAdvice(json, advice);
  return nlohmann::json::parse(json.text());
}

constexpr StepModel kSteps = {.seconds_per_sequence = 0.01, .update_seconds = 0.32};

TEST(Advise, OfASmallBatch_NamesTheBestOneAndItsLearningRate) {
  // sqrt(0.32 * 32 / 0.01) = 32
  const BatchAdvice advice =
      Advise({.unmeasured = "", .now = {8, 1}, .ranks = 2}, MeterOf(32), kSteps);
  EXPECT_EQ(advice.unknown, "");
  EXPECT_EQ(advice.best.shape, (BatchShape{8, 4}));
  EXPECT_NEAR(advice.gain, (32 / 0.64 * 40 / 64) / (8 / 0.40) - 1, 1e-9);
  EXPECT_DOUBLE_EQ(advice.rate_factor, 2);
  EXPECT_EQ(
      AdviceWords(advice),
      "gradient noise scale 32 sequences (32 to 32): a step of 32 sequences instead of 8 would "
      "learn 56% faster (--batch 8 --accumulate 4, and --lr times 2 by the square root rule)");
  const nlohmann::json json = JsonOf(advice);
  EXPECT_EQ(json["best"]["accumulate"], 4);
  EXPECT_EQ(json["best"]["sequences_per_step"], 32);
  EXPECT_NEAR(json["noise_scale"].get<double>(), 32, 1e-9);
  EXPECT_EQ(json["learning_rate_rule"], "square root");
  EXPECT_NEAR(json["micro_batch_seconds"].get<double>(), 0.08, 1e-12);
  EXPECT_EQ(json["rows"].size(), 5u);  // 8 to 128
}

TEST(Advise, OfTheBestBatch_SaysThatItIs) {
  const BatchAdvice advice = Advise({.unmeasured = "", .now = {8, 4}}, MeterOf(32), kSteps);
  EXPECT_LT(advice.gain, kLeastGain);
  EXPECT_THAT(AdviceWords(advice), HasSubstr("a step of 32 sequences learns fastest"));
}

// Smaller micro-batches were not timed, so the advice does not mention them.
TEST(Advise, OfOneMicroBatchThatIsBest_SpeaksOfLargerStepsAlone) {
  const BatchAdvice advice = Advise({.unmeasured = "", .now = {64, 1}}, MeterOf(1), kSteps);
  EXPECT_THAT(AdviceWords(advice), HasSubstr("no step of more than 64 sequences"));
}

TEST(Advise, OfAnySize_StaysWithinSixteenTimes) {
  const BatchAdvice advice = Advise({.unmeasured = "", .now = {1, 1}}, MeterOf(1e6), kSteps);
  EXPECT_EQ(advice.best.shape.total(), 16u);
}

// Only micro-batches of 8 were timed.
TEST(Advise, OfOneSizeOfMicroBatch_GoesToNoOther) {
  const BatchAdvice advice =
      Advise({.unmeasured = "", .now = {8, 2}, .ranks = 1}, MeterOf(0.1), kSteps);
  EXPECT_EQ(advice.best.shape, (BatchShape{8, 1}));
  for (const BatchRow& row : advice.rows) EXPECT_EQ(row.shape.sequences, 8u);
}

TEST(Advise, OfARunThatCannotMeasure_SaysWhy) {
  const BatchAdvice advice =
      Advise({.unmeasured = "one gradient", .now = {8, 1}}, NoiseMeter(), kSteps);
  EXPECT_EQ(advice.unknown, "one gradient");
  EXPECT_EQ(AdviceWords(advice), "");
  const nlohmann::json json = JsonOf(advice);
  EXPECT_EQ(json["unknown"], "one gradient");
  EXPECT_TRUE(json["noise_scale"].is_null());
  EXPECT_FALSE(json.contains("best"));
}

TEST(Advise, OfFewSteps_SaysHowManyAreNeeded) {
  const AdviceFacts facts = {.unmeasured = "", .now = {8, 1}};
  EXPECT_THAT(Advise(facts, MeterOf(32, 7), kSteps).unknown, HasSubstr("in 7 steps"));
  EXPECT_THAT(Advise(facts, MeterOf(32), std::nullopt).unknown, HasSubstr("no step was timed"));
  NoiseMeter lost;
  for (int step = 0; step < 50; ++step) {
    lost.Add({.gradients = 2, .sequences = 1, .mean_square = 10, .square_of_mean = 5});
  }
  EXPECT_THAT(Advise(facts, lost, kSteps).unknown, HasSubstr("does not stand out"));
}

}  // namespace
}  // namespace geminid::trainer
