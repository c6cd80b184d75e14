// The effect of a step on each parameter: its number of updates, the rates of its group, and a
// gradient that is not finite.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/client/zero/engine/engine_calls_fixture.h"

namespace geminid::zero {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Truly;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kRate = 0.1;

std::vector<Parameter> WithBLeftOut() {
  std::vector<Parameter> parameters = ThreeParameters();
  parameters[1].update_without_gradient = false;
  return parameters;
}

class EngineStepsTest : public EngineCallsTest {
 protected:
  // One step in which these parameters get a gradient of this value.
  void MustStepOf(const std::vector<ParameterId>& written, float value,
                  const Engine::StepInput& input = {.learning_rate = kRate}) {
    ASSERT_TRUE(engine_().BeginMicroBatch().ok());
    for (ParameterId id : written) ASSERT_TRUE(Backward(engine_(), id, value).ok());
    const auto step = engine_().Step(input);
    ASSERT_TRUE(step.ok()) << step.status();
  }

  // All state of a parameter.
  std::vector<std::vector<float>> StateOf(ParameterId id) {
    std::vector<std::vector<float>> state;
    for (StateKind kind : kStateKinds) {
      if (!engine_().HasState(id, kind)) continue;
      state.emplace_back(kElements);
      EXPECT_EQ(engine_().ReadShard(id, kind, 0, state.back()), absl::OkStatus());
    }
    return state;
  }
  void SetState(ParameterId id, const std::vector<std::vector<float>>& state) {
    size_t next = 0;
    for (StateKind kind : kStateKinds) {
      if (!engine_().HasState(id, kind)) continue;
      ASSERT_EQ(engine_().WriteShard(id, kind, 0, state[next++]), absl::OkStatus());
    }
  }
};

// --- updates that are counted by parameter -------------------------------------------------------

std::vector<Optimizer> OptimizersThatCount() {
  LambOptions lamb;
  lamb.max_grad_norm = 0;  // the norm would depend on the other parameters' gradients
  return {AdamWOptions{},
          AdamOptions{},
          lamb,
          AdafactorOptions{},
          AdagradOptions{.rate_decay = 0.5},
          SgdOptions{.momentum = 0.9, .dampening = 0.5},
          LionOptions{},
          LarsOptions{},
          CameOptions{}};
}

TEST_F(EngineStepsTest, ParameterLeftOutOfSteps_IsUpdatedAsIfTheyHadNotBeen) {
  for (const Optimizer& optimizer : OptimizersThatCount()) {
    SCOPED_TRACE(Name(optimizer));
    Options options = SmallChunks();
    options.optimizer = optimizer;
    Make(WithBLeftOut(), options);
    for (const float value : {1.0f, -2.0f, 0.5f}) MustStepOf({kA, kB}, value);
    const std::vector<std::vector<float>> expected = StateOf(kB);
    Make(WithBLeftOut(), options);
    MustStepOf({kA}, 1);
    MustStepOf({kA, kB}, 1);
    MustStepOf({kA}, 3);
    MustStepOf({kA}, 3);
    MustStepOf({kA, kB}, -2);
    MustStepOf({kB}, 0.5f);
    EXPECT_EQ(StateOf(kB), expected);
  }
}

TEST_F(EngineStepsTest, FirstGradientInTheTenthStep_MovesAdamByTheWholeRate) {
  Options options = SmallChunks();
  options.optimizer = AdamWOptions{.beta1 = 0.9, .beta2 = 0.999, .weight_decay = 0};
  Make(WithBLeftOut(), options);
  for (int step = 0; step < 9; ++step) MustStepOf({kA}, 1);
  MustStepOf({kA, kB}, 1);
  EXPECT_NEAR(First(kB), 2 - kRate, 1e-6);
}

TEST_F(EngineStepsTest, CountsOfUpdates_GoOnWithTheState) {
  for (const Optimizer& optimizer : OptimizersThatCount()) {
    SCOPED_TRACE(Name(optimizer));
    Options options = SmallChunks();
    options.optimizer = optimizer;
    Make(WithBLeftOut(), options);
    MustStepOf({kA}, 1);
    MustStepOf({kA, kB}, 1);
    const auto progress = engine_().GetProgress();
    ASSERT_TRUE(progress.ok()) << progress.status();
    const auto a = StateOf(kA);
    const auto b = StateOf(kB);
    MustStepOf({kA, kB}, 2);
    const auto expected = StateOf(kB);
    Make(WithBLeftOut(), options);
    SetState(kA, a);
    SetState(kB, b);
    ASSERT_EQ(engine_().Restore(*progress), absl::OkStatus());
    MustStepOf({kA, kB}, 2);
    EXPECT_EQ(StateOf(kB), expected);
  }
}

TEST_F(EngineStepsTest, StateWithoutCounts_HasHadAllUpdates) {
  Options options = SmallChunks();
  Make(ThreeParameters(), options);
  MustStepOf({kA, kB}, 1);
  MustStepOf({kA}, 1);
  const auto progress = engine_().GetProgress();
  ASSERT_TRUE(progress.ok()) << progress.status();
  const auto b = StateOf(kB);
  MustStepOf({kA, kB}, 2);
  const auto expected = StateOf(kB);
  Make(WithBLeftOut(), options);
  SetState(kB, b);
  ASSERT_EQ(engine_().Restore(*progress), absl::OkStatus());
  MustStepOf({kA, kB}, 2);
  EXPECT_EQ(StateOf(kB), expected);
}

TEST_F(EngineStepsTest, CountsWhereNothingIsCounted_AreTakenIfAllHadAllUpdatesElseRefused) {
  Make(WithBLeftOut(), SmallChunks());
  MustStepOf({kA, kB}, 1);
  const auto all = engine_().GetProgress();
  MustStepOf({kA}, 1);
  const auto left_out = engine_().GetProgress();
  ASSERT_TRUE(all.ok() && left_out.ok());
  Make(ThreeParameters(), SmallChunks());
  const absl::Status refused = engine_().Restore(*left_out);
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("'b' has had 1 of the run's 2 updates"),
                    HasSubstr("update_without_gradient")));
  EXPECT_EQ(engine_().GetProgress()->step, 0u);
  EXPECT_EQ(engine_().Restore(*all), absl::OkStatus());
}

// --- what a group has of its own -----------------------------------------------------------------

TEST_F(EngineStepsTest, GroupWithBetasAndEpsilon_IsUpdatedAsByAnOptimizerWithThem) {
  constexpr double kBeta1 = 0.5, kBeta2 = 0.75, kEpsilon = 0.25;
  const std::vector<std::pair<Optimizer, Optimizer>> pairs = {
      {AdamWOptions{}, AdamWOptions{.beta1 = kBeta1, .beta2 = kBeta2, .epsilon = kEpsilon}},
      {AdamOptions{}, AdamOptions{.beta1 = kBeta1, .beta2 = kBeta2, .epsilon = kEpsilon}}};
  for (const auto& [plain, with] : pairs) {
    SCOPED_TRACE(Name(plain));
    Options options = SmallChunks();
    options.optimizer = with;
    Make(ThreeParameters(), options);
    for (int step = 0; step < 3; ++step) MustStepOf({kA, kB, kC}, 0.5f);
    const auto expected = StateOf(kB);
    options.optimizer = plain;
    std::vector<Parameter> parameters = ThreeParameters();
    parameters[1].group = 1;
    Make(parameters, options);
    const Engine::GroupInput own = {
        .learning_rate = kRate, .beta1 = kBeta1, .beta2 = kBeta2, .epsilon = kEpsilon};
    for (int step = 0; step < 3; ++step) {
      MustStepOf({kA, kB, kC}, 0.5f, {.groups = {{.learning_rate = kRate}, own}});
    }
    EXPECT_EQ(StateOf(kB), expected);
    EXPECT_NE(StateOf(kA)[1], StateOf(kB)[1]);
  }
}

TEST_F(EngineStepsTest, GroupWithWhatTheOptimizerCannotHave_IsRefusedAndNothingHasChanged) {
  const auto expect_refused = [&](const Optimizer& optimizer, const Engine::GroupInput& group,
                                  const std::string& why) {
    Options options = SmallChunks();
    options.optimizer = optimizer;
    Make(ThreeParameters(), options);
    ASSERT_TRUE(MicroBatch(engine_()).ok());
    const absl::Status refused = engine_().Step({.groups = {group}}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(why));
    const auto step = engine_().Step({.learning_rate = kRate});
    ASSERT_TRUE(step.ok()) << step.status();
    EXPECT_EQ(step->step, 1u);
  };
  expect_refused(AdamWOptions{}, {.beta1 = 1.0}, "beta1 is 1; with adamw it must be");
  expect_refused(AdamWOptions{}, {.epsilon = -1}, "epsilon is -1; with adamw it must be");
  expect_refused(AdagradOptions{}, {.beta1 = 0.5}, "adagrad has no beta1");
  expect_refused(LionOptions{}, {.epsilon = 1}, "lion has no epsilon");
  expect_refused(SgdOptions{}, {.beta1 = 0.9}, "created without a first moment");
  expect_refused(SgdOptions{.momentum = 0.9}, {.beta1 = 0}, "created with a first moment");
}

// --- gradients that are not finite ---------------------------------------------------------------

class NotFiniteTest : public EngineStepsTest {
 protected:
  void MakeWith(NotFinite not_finite, double clip_norm) {
    options_ = SmallChunks();
    options_.not_finite = not_finite;
    options_.clip_norm = clip_norm;
    options_.optimizer = AdamWOptions{.weight_decay = 0};
    Make(ThreeParameters(), options_);
  }
  // b's gradient is ones, except one element.
  void GiveGradients(float bad) {
    ASSERT_TRUE(engine_().BeginMicroBatch().ok());
    ASSERT_TRUE(Backward(engine_(), kA).ok());
    auto operation = engine_().Use(Pass::kBackward, std::vector<ParameterId>{kB});
    ASSERT_TRUE(operation.ok()) << operation.status();
    const auto gradient = std::span(reinterpret_cast<float*>(operation->Gradient(kB)), kElements);
    std::ranges::fill(gradient, 1);
    gradient[kBad] = bad;
    ASSERT_TRUE(operation->GradientWritten(kB).ok());
  }

  static constexpr size_t kBad = 77;
  Options options_;
};

TEST_F(NotFiniteTest, Skipped_ChangesNothing) {
  MakeWith(NotFinite::kSkip, 1);
  GiveGradients(kNan);
  const auto step = engine_().Step({.learning_rate = kRate});
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_TRUE(step->overflow);
  EXPECT_EQ(First(kB), 2);
}

TEST_F(NotFiniteTest, WrittenWithoutClipping_SpoilsItsElementAlone) {
  for (const float bad : {kNan, kInfinity}) {
    MakeWith(NotFinite::kWrite, 0);
    GiveGradients(bad);
    const auto step = engine_().Step({.learning_rate = kRate});
    ASSERT_TRUE(step.ok()) << step.status();
    EXPECT_FALSE(step->overflow);
    EXPECT_FALSE(std::isfinite(step->gradient_norm));
    const auto values = AllValues();
    EXPECT_TRUE(std::isnan(values[1][kBad]));
    EXPECT_NEAR(values[1][kBad + 1], 2 - kRate, 1e-6);
    EXPECT_NEAR(values[0][kBad], 1 - kRate, 1e-6);
  }
}

// As with torch's clip_grad_norm_, everything is multiplied by NaN, or by 0.
TEST_F(NotFiniteTest, WrittenWithClipping_MultipliesAllByTheCoefficient) {
  MakeWith(NotFinite::kWrite, 1);
  GiveGradients(kNan);
  ASSERT_TRUE(engine_().Step({.learning_rate = kRate}).ok());
  for (const std::vector<float>& values : AllValues()) {
    EXPECT_THAT(values, Each(Truly([](float value) { return std::isnan(value); })));
  }
  MakeWith(NotFinite::kWrite, 1);
  GiveGradients(kInfinity);
  const auto step = engine_().Step({.learning_rate = kRate});
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(step->clip_coefficient, 0);
  EXPECT_TRUE(std::isnan(AllValues()[1][kBad]));
  EXPECT_EQ(AllValues()[1][kBad + 1], 2);
}

// The step has its own scale. Norm, coefficient and weights are those of gradients of ones.
TEST_F(NotFiniteTest, GradientScaleOfAStep_IsDividedOutOfNormClippingAndUpdate) {
  constexpr double kScale = 1024;
  options_ = SmallChunks();
  options_.optimizer = SgdOptions{};
  options_.clip_norm = std::sqrt(double{kElements}) / 2;
  Make(ThreeParameters(), options_);
  for (const double scale : {1.0, kScale, 1 / kScale}) {
    const float before = First(kB);
    ASSERT_TRUE(engine_().BeginMicroBatch().ok());
    {
      auto operation = engine_().Use(Pass::kBackward, std::vector<ParameterId>{kB});
      ASSERT_TRUE(operation.ok()) << operation.status();
      std::ranges::fill(std::span(reinterpret_cast<float*>(operation->Gradient(kB)), kElements),
                        static_cast<float>(scale));
      ASSERT_TRUE(operation->GradientWritten(kB).ok());
    }
    const auto norm = engine_().GradientNorm();
    ASSERT_TRUE(norm.ok()) << norm.status();
    EXPECT_DOUBLE_EQ(*norm, scale * std::sqrt(double{kElements})) << "no step says its scale yet";
    const auto step = engine_().Step({.learning_rate = 0.5, .gradient_scale = scale});
    ASSERT_TRUE(step.ok()) << step.status();
    EXPECT_DOUBLE_EQ(step->gradient_norm, std::sqrt(double{kElements}));
    EXPECT_NEAR(step->clip_coefficient, 0.5, 1e-7);
    EXPECT_EQ(step->loss_scale, scale);
    EXPECT_NEAR(First(kB), before - 0.25, 1e-6);
  }
}

TEST_F(NotFiniteTest, GradientScaleThatIsNone_IsRefusedAndNothingHasChanged) {
  MakeWith(NotFinite::kSkip, 0);
  GiveGradients(1);
  for (const double scale : {0.0, -2.0, double{kNan}, double{kInfinity}}) {
    const auto refused = engine_().Step({.learning_rate = kRate, .gradient_scale = scale});
    EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("gradient_scale is "));
  }
  EXPECT_TRUE(engine_().Step({.learning_rate = kRate, .gradient_scale = 2}).ok());
}

TEST_F(NotFiniteTest, Failing_NamesTheParameterAndCanBeGivenUp) {
  MakeWith(NotFinite::kFail, 1);
  GiveGradients(kNan);
  for (int i = 0; i < 2; ++i) {
    const absl::Status failed = engine_().Step({.learning_rate = kRate}).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(failed)) << failed;
    EXPECT_THAT(std::string(failed.message()), AllOf(HasSubstr("norm is nan"), HasSubstr("'b'")));
  }
  ASSERT_EQ(engine_().CancelMicroBatch(), absl::OkStatus());
  EXPECT_EQ(First(kB), 2);
  MustStepOf({kA, kB, kC}, 1);
  EXPECT_EQ(engine_().GetProgress()->step, 1u);
}

TEST_F(NotFiniteTest, FailingAndThenCorrected_IsStepped) {
  MakeWith(NotFinite::kFail, 0);
  GiveGradients(kInfinity);
  ASSERT_TRUE(absl::IsFailedPrecondition(engine_().Step({.learning_rate = kRate}).status()));
  ASSERT_EQ(engine_().WriteGradient(kB, kBad, std::vector<float>{1}), absl::OkStatus());
  const auto step = engine_().Step({.learning_rate = kRate});
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_NEAR(step->gradient_norm, std::sqrt(2.0 * kElements), 1e-6);
  EXPECT_NEAR(AllValues()[1][kBad], 2 - kRate, 1e-6);
}

TEST_F(NotFiniteTest, WhatCannotBeWritten_IsRefusedAtTheStart) {
  MakeWith(NotFinite::kSkip, 0);
  const auto created = [&](const Options& options) {
    rank_.engine.reset();
    return Engine::Create(rank_.session.get(), rank_.communicator.get(), ThreeParameters(), options)
        .status();
  };
  Options sums = options_;
  sums.not_finite = NotFinite::kWrite;
  sums.optimizer = LambOptions{};
  EXPECT_THAT(std::string(created(sums).message()), HasSubstr("lamb needs sums"));
  Options scaled = options_;
  scaled.not_finite = NotFinite::kFail;
  scaled.loss_scale = LossScalerOptions{};
  EXPECT_THAT(std::string(created(scaled).message()), HasSubstr("loss scaling"));
}

}  // namespace
}  // namespace geminid::zero
