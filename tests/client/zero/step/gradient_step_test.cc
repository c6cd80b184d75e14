#include "client/zero/step/gradient_step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>

namespace geminid::zero {
namespace {

// Tests the decisions that depend only on the numbers, without the other parts.
class GradientStepTest : public ::testing::Test {
 protected:
  GradientStep& Make(const Options& options, const RunPosition& run = {}) {
    setup_ = std::make_unique<EngineSetup>(nullptr, nullptr, std::vector<Parameter>(), options);
    step_ = std::make_unique<GradientStep>(*setup_, GradientStep::Parts{}, run);
    return *step_;
  }

  std::unique_ptr<EngineSetup> setup_;
  std::unique_ptr<GradientStep> step_;
};

TEST_F(GradientStepTest, NormAboveTheClip_IsScaledDownToIt) {
  GradientStep& step = Make({});
  EXPECT_DOUBLE_EQ(step.Decide(4, 1).clip_coefficient, 1 / (4 + 1e-6));
  EXPECT_EQ(step.Decide(0.5, 1).clip_coefficient, 1);
  EXPECT_EQ(step.Decide(4, 0).clip_coefficient, 1);
  EXPECT_EQ(step.position().step, 3u);
  EXPECT_EQ(step.position().updates, 3u);
}

TEST_F(GradientStepTest, NormThatIsNotFinite_IsAStepWithoutAnUpdate) {
  GradientStep& step = Make({}, {.step = 10, .epoch = 12, .updates = 8});
  const StepResult result = step.Decide(std::numeric_limits<double>::infinity(), 1);
  EXPECT_TRUE(result.overflow);
  EXPECT_EQ(result.clip_coefficient, 1);
  EXPECT_EQ(step.position().step, 11u);
  EXPECT_EQ(step.position().updates, 8u);
  EXPECT_EQ(step.position().epoch, 12u);
}

TEST_F(GradientStepTest, NotFiniteStepsThatAreWritten_AreUpdates) {
  Options options;
  options.not_finite = NotFinite::kWrite;
  GradientStep& step = Make(options);
  const StepResult result = step.Decide(std::nan(""), 1);
  EXPECT_FALSE(result.overflow);
  EXPECT_TRUE(std::isnan(result.clip_coefficient));
  EXPECT_EQ(step.position().updates, 1u);
}

TEST_F(GradientStepTest, FewerMicroBatchesThanExpected_AreStillAMean) {
  Options options;
  options.accumulate = 4;
  options.loss_scale = FixedLossScale(8);
  GradientStep& step = Make(options);
  step.CountMicroBatch();
  step.CountMicroBatch();
  EXPECT_EQ(step.Scale(), 4.0 / 2 / 8);
  options.gradient_scale = GradientScale::kSum;
  EXPECT_EQ(Make(options).Scale(), 4.0 / 8);
}

TEST_F(GradientStepTest, RunThatGoesOn_HasTheLossScaleOfItsRecord) {
  Options options;
  options.loss_scale = LossScalerOptions{};
  const LossScaler::State state = {.scale = 32};
  EXPECT_EQ(Make(options, {.loss_scaler = state}).loss_scale(), 32);
  EXPECT_EQ(Make(options).loss_scale(), 65536);
}

}  // namespace
}  // namespace geminid::zero
