#include "training/goodput/step_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/counter_random.h"

namespace geminid::trainer {
namespace {

constexpr StepModel kTruth = {.fixed_seconds = 0.020,
                              .seconds_per_sequence = 0.005,
                              .update_seconds = 0.100,
                              .fixed_known = true};

StepTimes TimesOf(double sequences, double micro_batches) {
  return {.sequences = sequences,
          .micro_batches = micro_batches,
          .micro_batch_seconds = kTruth.MicroBatchSeconds(sequences),
          .step_seconds = kTruth.StepSeconds(sequences, micro_batches)};
}

TEST(FitStepModel, OfExactTimes_FindsWhatMadeThem) {
  std::vector<StepTimes> times;
  for (const double sequences : {2.0, 4.0, 16.0}) {
    for (const double micro_batches : {1.0, 3.0})
      times.push_back(TimesOf(sequences, micro_batches));
  }
  const std::optional<StepModel> fit = FitStepModel(times);
  ASSERT_TRUE(fit.has_value());
  EXPECT_TRUE(fit->fixed_known);
  EXPECT_NEAR(fit->fixed_seconds, 0.020, 1e-9);
  EXPECT_NEAR(fit->seconds_per_sequence, 0.005, 1e-9);
  EXPECT_NEAR(fit->update_seconds, 0.100, 1e-9);
}

// Each time has noise of a tenth, and one step in twenty takes ten times as long.
TEST(FitStepModel, OfNoisyTimesWithOutliers_FindsThemWithinATenth) {
  std::vector<StepTimes> times;
  for (uint64_t step = 0; step < 600; ++step) {
    const double sequences = step % 3 == 0 ? 2 : (step % 3 == 1 ? 8 : 32);
    StepTimes exact = TimesOf(sequences, 2);
    const base::NormalPair noise = base::RandomNormals(11, step);
    exact.micro_batch_seconds *= 1 + 0.1 * std::clamp(noise.values[0], -3.0, 3.0);
    exact.step_seconds =
        2 * exact.micro_batch_seconds + 0.1 * (1 + 0.1 * std::clamp(noise.values[1], -3.0, 3.0));
    if (step % 20 == 7) exact.step_seconds *= 10;
    times.push_back(exact);
  }
  const std::optional<StepModel> fit = FitStepModel(times);
  ASSERT_TRUE(fit.has_value());
  EXPECT_NEAR(fit->fixed_seconds, 0.020, 0.003);
  EXPECT_NEAR(fit->seconds_per_sequence, 0.005, 0.0005);
  EXPECT_NEAR(fit->update_seconds, 0.100, 0.010);
}

TEST(FitStepModel, OfOneSize_TakesTimeToBeProportional) {
  const std::optional<StepModel> fit = FitStepModel(std::vector<StepTimes>{TimesOf(4, 2)});
  ASSERT_TRUE(fit.has_value());
  EXPECT_FALSE(fit->fixed_known);
  EXPECT_EQ(fit->fixed_seconds, 0);
  EXPECT_NEAR(fit->MicroBatchSeconds(4), 0.040, 1e-12);
  EXPECT_NEAR(fit->update_seconds, 0.100, 1e-12);
}

// Larger micro-batches take less time, or so much more that the line is below 0 at 0.
TEST(FitStepModel, OfImpossibleTimes_HasNoPartBelowZero) {
  for (const double second : {0.5, 8.0}) {
    const std::vector<StepTimes> times = {
        {.sequences = 1, .micro_batches = 1, .micro_batch_seconds = 1, .step_seconds = 0.5},
        {.sequences = 2, .micro_batches = 1, .micro_batch_seconds = second, .step_seconds = 0.2}};
    const std::optional<StepModel> fit = FitStepModel(times);
    ASSERT_TRUE(fit.has_value());
    EXPECT_GE(fit->fixed_seconds, 0);
    EXPECT_GE(fit->seconds_per_sequence, 0);
    EXPECT_EQ(fit->update_seconds, 0);
    EXPECT_GT(fit->MicroBatchSeconds(1), 0);
  }
}

TEST(FitStepModel, OfNoTimes_IsNothing) {
  EXPECT_EQ(FitStepModel({}), std::nullopt);
  EXPECT_EQ(FitStepModel(std::vector<StepTimes>{{.sequences = 4, .micro_batches = 1}}),
            std::nullopt);
}

}  // namespace
}  // namespace geminid::trainer
