#include "client/zero/core/replan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

namespace geminid::zero {
namespace {

ReplanController Make(const ReplanOptions& options = {}, double model_seconds = 1) {
  absl::StatusOr<ReplanController> made = ReplanController::Create(options, model_seconds);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

// Feeds steps. Each new plan predicts `model_seconds` again. Returns the number of replans.
int Replans(ReplanController& controller, int steps,
            const std::function<StepObservation(int, const ReplanController&)>& step,
            double model_seconds = 1) {
  int replans = 0;
  for (int i = 0; i < steps; ++i) {
    if (controller.OnStep(step(i, controller)) == ReplanCause::kNone) continue;
    ++replans;
    controller.OnReplanned(model_seconds);
  }
  return replans;
}

// The bound that replan.h states.
double Bound(const ReplanOptions& options, int steps) {
  return std::log2(static_cast<double>(options.most_backoff_steps) / options.first_backoff_steps) +
         2 + 2.0 * steps / options.most_backoff_steps;
}

TEST(ReplanController, StepsWithinTheModel_NeverReplan) {
  ReplanController controller = Make();
  std::mt19937 random(1);
  EXPECT_EQ(Replans(controller, 10000,
                    [&](int, const ReplanController&) {
                      return StepObservation{0.951 + 0.098 * (random() % 1000) / 1000.0};
                    }),
            0);
}

TEST(ReplanController, DeparturesInARow_ReplanWithTheCause) {
  ReplanController slower = Make();
  EXPECT_EQ(slower.OnStep({1.06}), ReplanCause::kNone);
  EXPECT_EQ(slower.OnStep({1.06}), ReplanCause::kNone);
  EXPECT_EQ(slower.OnStep({1.06}), ReplanCause::kSlower);
  ReplanController faster = Make();
  faster.OnStep({0.94});
  faster.OnStep({0.94});
  EXPECT_EQ(faster.OnStep({0.94}), ReplanCause::kFaster);
}

TEST(ReplanController, OneCalmStepOrATurn_StartsTheCountAgain) {
  ReplanController controller = Make();
  for (const double seconds : {1.1, 1.1, 1.0, 1.1, 1.1, 0.9, 0.9, 1.1, 1.1}) {
    EXPECT_EQ(controller.OnStep({seconds}), ReplanCause::kNone) << seconds;
  }
  EXPECT_EQ(controller.OnStep({1.1}), ReplanCause::kSlower);
}

TEST(ReplanController, LastingDeparture_ReplansOnceAndCalibrates) {
  ReplanController controller = Make();
  const auto step = [](int, const ReplanController&) { return StepObservation{1.3}; };
  EXPECT_EQ(Replans(controller, 10000, step), 1);
  EXPECT_DOUBLE_EQ(controller.expected_seconds(), 1.3);
}

TEST(ReplanController, PlanThatKnowsOfTheDeparture_IsNotCorrectedAgain) {
  ReplanController controller = Make();
  const auto step = [](int, const ReplanController&) { return StepObservation{2}; };
  EXPECT_EQ(Replans(controller, 10000, step, /*model_seconds=*/1.9), 1);
  EXPECT_DOUBLE_EQ(controller.expected_seconds(), 2);
}

TEST(ReplanController, UntilReplanned_AsksOnlyOnce) {
  ReplanController controller = Make();
  controller.OnStep({2});
  controller.OnStep({2});
  EXPECT_EQ(controller.OnStep({2}), ReplanCause::kSlower);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(controller.OnStep({2}), ReplanCause::kNone);
}

TEST(ReplanController, PeakAboveTheMargin_ReplansAtOnceEvenInBackoff) {
  ReplanController controller = Make({.margin_bytes = 100});
  EXPECT_EQ(controller.OnStep({1, 100}), ReplanCause::kNone);
  EXPECT_EQ(controller.OnStep({1, 101}), ReplanCause::kPeak);
  EXPECT_EQ(controller.margin_bytes(), 200u);
  controller.OnReplanned(1);
  EXPECT_EQ(controller.OnStep({1, 200}), ReplanCause::kNone);
  EXPECT_EQ(controller.OnStep({1, 1000}), ReplanCause::kPeak);
  EXPECT_EQ(controller.margin_bytes(), 1000u);
}

TEST(ReplanController, PeakCreepingByABytePerStep_ReplansLogarithmicallyOften) {
  ReplanController controller = Make();
  const int replans = Replans(controller, 100000, [](int i, const ReplanController&) {
    return StepObservation{1, static_cast<std::uint64_t>(i)};
  });
  EXPECT_GT(replans, 10);
  EXPECT_LE(replans, std::log2(100000) + 2);
}

TEST(ReplanController, AdversarialSequences_ReplansAreBounded) {
  constexpr int kSteps = 20000;
  const ReplanOptions options;
  const std::function<StepObservation(int, const ReplanController&)> adversaries[] = {
      [](int i, const ReplanController&) { return StepObservation{i % 2 == 0 ? 0.5 : 2.0}; },
      [](int i, const ReplanController&) { return StepObservation{i / 3 % 2 == 0 ? 0.5 : 2.0}; },
      [](int i, const ReplanController&) { return StepObservation{i / 50 % 2 == 0 ? 0.5 : 2.0}; },
      // Every step departs from the present expectation.
      [](int, const ReplanController& c) { return StepObservation{1.2 * c.expected_seconds()}; },
      [](int i, const ReplanController& c) {
        return StepObservation{(i / 1000 % 2 == 0 ? 1.2 : 0.8) * c.expected_seconds()};
      },
      // The steps are calm for long enough to restore the patience, then one departs.
      [](int i, const ReplanController& c) {
        return StepObservation{(i % 1100 < 1090 ? 1.0 : 1.5) * c.expected_seconds()};
      },
  };
  for (std::size_t k = 0; k < std::size(adversaries); ++k) {
    ReplanController controller = Make(options);
    const int replans = Replans(controller, kSteps, adversaries[k]);
    EXPECT_LE(replans, Bound(options, kSteps)) << "adversary " << k;
  }
  // Without backoff the same adversary does force many replans, so the bound matters.
  ReplanController impatient = Make({.first_backoff_steps = 1, .most_backoff_steps = 1});
  EXPECT_GT(Replans(impatient, kSteps, adversaries[3]), 1000);
}

TEST(ReplanController, RandomSteps_ReplansAreBounded) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    ReplanController controller = Make();
    const int replans = Replans(controller, 20000, [&](int, const ReplanController&) {
      return StepObservation{0.5 + (random() % 1000) / 500.0};
    });
    EXPECT_LE(replans, Bound({}, 20000)) << seed;
  }
}

TEST(ReplanController, WrongOptions_AreRefused) {
  EXPECT_FALSE(ReplanController::Create({}, 0).ok());
  EXPECT_FALSE(ReplanController::Create({}, std::nan("")).ok());
  EXPECT_FALSE(ReplanController::Create({.step_time_departure = 0}, 1).ok());
  EXPECT_FALSE(ReplanController::Create({.departures_in_a_row = 0}, 1).ok());
  EXPECT_FALSE(
      ReplanController::Create({.first_backoff_steps = 9, .most_backoff_steps = 8}, 1).ok());
}

TEST(ReplanController, StepTimesThatAreNone_AreNotJudged) {
  ReplanController controller = Make();
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(controller.OnStep({std::nan("")}), ReplanCause::kNone);
    EXPECT_EQ(controller.OnStep({0}), ReplanCause::kNone);
  }
}

}  // namespace
}  // namespace geminid::zero
