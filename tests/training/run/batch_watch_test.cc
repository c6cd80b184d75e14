#include "training/run/batch_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace geminid::trainer {
namespace {

using testing::HasSubstr;

TrainOptions OptionsOf(uint64_t batch, int accumulate) {
  TrainOptions options;
  options.batch = batch;
  options.zero.accumulate = accumulate;
  return options;
}

// Gradients with |G|^2 = 1 and the variance `noise` of one sequence.
zero::StepGradients GradientsOf(double noise, uint64_t count, double sequences) {
  const double n = static_cast<double>(count);
  return {.count = count,
          .mean_square = 1 + noise / sequences,
          .square_of_mean = 1 + noise / (n * sequences)};
}

// Steps with a simulated clock.
class Steps {
 public:
  explicit Steps(BatchWatch* watch) : watch_(watch) {}

  void Step(const std::vector<double>& micro_batches, double rest,
            const zero::StepGradients& gradients, double waited = 0) {
    const absl::Time began = now_;
    watch_->BeginStep(waited_);
    for (const double seconds : micro_batches) {
      watch_->BeginMicroBatch(now_);
      now_ += absl::Seconds(seconds);
    }
    waited_ += absl::Seconds(waited);
    watch_->EndMicroBatches(now_, waited_);
    now_ += absl::Seconds(rest);
    watch_->EndStep(gradients, absl::ToDoubleSeconds(now_ - began));
  }

 private:
  BatchWatch* const watch_;
  absl::Time now_ = absl::UnixEpoch();
  absl::Duration waited_;
};

TEST(BatchWatch, OfSeveralMicroBatches_CountsTheFirstOnesWaitToTheUpdate) {
  BatchWatch watch(OptionsOf(8, 3), 2);
  ASSERT_TRUE(watch.measures());
  Steps steps(&watch);
  for (int i = 0; i < 20; ++i) steps.Step({3, 1, 1}, 0.5, GradientsOf(50, 6, 4));
  const BatchAdvice advice = watch.Advice();
  ASSERT_EQ(advice.unknown, "");
  EXPECT_NEAR(advice.steps->MicroBatchSeconds(8), 1, 1e-9);
  EXPECT_NEAR(advice.steps->update_seconds, 2.5, 1e-9);
  EXPECT_NEAR(advice.noise->sequences, 50, 1e-9);
  EXPECT_EQ(advice.now, (BatchShape{8, 3}));
}

TEST(BatchWatch, OfOneMicroBatch_TakesItsWaitForUpdatesOff) {
  BatchWatch watch(OptionsOf(8, 1), 2);
  Steps steps(&watch);
  for (int i = 0; i < 20; ++i) steps.Step({3}, 0.5, GradientsOf(50, 2, 4), /*waited=*/2);
  const BatchAdvice advice = watch.Advice();
  EXPECT_NEAR(advice.steps->MicroBatchSeconds(8), 1, 1e-9);
  EXPECT_NEAR(advice.steps->update_seconds, 2.5, 1e-9);
}

TEST(BatchWatch, OfTheFirstStep_TakesNoTimes) {
  BatchWatch watch(OptionsOf(8, 1), 2);
  Steps steps(&watch);
  steps.Step({100}, 100, GradientsOf(50, 2, 4));
  EXPECT_FALSE(watch.Advice().steps.has_value());
  steps.Step({1}, 1, GradientsOf(50, 2, 4));
  EXPECT_NEAR(watch.Advice().steps->update_seconds, 1, 1e-9);
}

TEST(BatchWatch, OfALongRun_ForgetsTheOldestTimes) {
  BatchWatch watch(OptionsOf(8, 1), 2);
  Steps steps(&watch);
  for (int i = 0; i < 300; ++i) steps.Step({9}, 9, GradientsOf(50, 2, 4));
  for (int i = 0; i < 300; ++i) steps.Step({1}, 1, GradientsOf(50, 2, 4));
  EXPECT_NEAR(watch.Advice().steps->update_seconds, 1, 1e-9);
}

TEST(BatchWatch, OfAStepThatOverflowed_TakesNoGradients) {
  BatchWatch watch(OptionsOf(8, 1), 2);
  Steps steps(&watch);
  zero::StepGradients infinite = GradientsOf(50, 2, 4);
  infinite.mean_square = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 20; ++i) steps.Step({1}, 1, i % 2 == 0 ? infinite : GradientsOf(50, 2, 4));
  EXPECT_EQ(watch.Advice().samples, 10u);
  EXPECT_NEAR(watch.Advice().noise->sequences, 50, 1e-9);
}

TEST(BatchWatch, OfSgd_FollowsAdaScaleAndOfOthersTheSquareRoot) {
  TrainOptions options = OptionsOf(8, 2);
  EXPECT_EQ(BatchWatch(options, 1).Advice().rule, RateRule::kSquareRoot);
  options.zero.optimizer = zero::SgdOptions{};
  EXPECT_EQ(BatchWatch(options, 1).Advice().rule, RateRule::kAdaScale);
}

TEST(BatchWatch, OfARunWithoutSeveralGradients_SaysWhatToDo) {
  EXPECT_THAT(WhyNoiseIsUnmeasured(OptionsOf(8, 1), 1), HasSubstr("--accumulate 2"));
  EXPECT_EQ(WhyNoiseIsUnmeasured(OptionsOf(8, 2), 1), "");
  EXPECT_EQ(WhyNoiseIsUnmeasured(OptionsOf(8, 1), 2), "");
  TrainOptions cut = OptionsOf(8, 4);
  cut.parallel.pipeline = 2;
  EXPECT_THAT(WhyNoiseIsUnmeasured(cut, 2), HasSubstr("the whole model"));
  EXPECT_FALSE(BatchWatch(cut, 2).measures());
  EXPECT_THAT(BatchWatch(cut, 2).Advice().unknown, HasSubstr("the whole model"));
}

}  // namespace
}  // namespace geminid::trainer
