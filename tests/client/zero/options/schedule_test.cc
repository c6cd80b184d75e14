#include "geminid/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace geminid {
namespace {

using testing::HasSubstr;

Schedule Of(ScheduleShape shape) {
  // 10 steps of warm-up, then 101 steps: progress is (step - 10) / 100.
  Schedule schedule;
  schedule.shape = shape;
  schedule.peak = 1.0;
  schedule.warmup_steps = 10;
  schedule.steps = 111;
  return schedule;
}

TEST(Schedule, InWarmUp_RisesLinearlyToThePeak) {
  Schedule schedule;
  schedule.peak = 2.0;
  schedule.warmup_steps = 4;
  schedule.steps = 100;
  EXPECT_DOUBLE_EQ(schedule.At(0), 0.5);
  EXPECT_DOUBLE_EQ(schedule.At(2), 1.5);
  EXPECT_DOUBLE_EQ(schedule.At(3), 2.0);
  EXPECT_DOUBLE_EQ(schedule.At(4), 2.0);
  EXPECT_DOUBLE_EQ(schedule.At(99), 2.0);
  for (ScheduleShape shape : {ScheduleShape::kLinear, ScheduleShape::kCosine,
                              ScheduleShape::kPolynomial, ScheduleShape::kMultiStep}) {
    EXPECT_DOUBLE_EQ(Of(shape).At(4), 0.5) << Name(shape);
  }
}

TEST(Schedule, OfCosine_FallsToATenthAtTheLastStep) {
  const Schedule schedule = Of(ScheduleShape::kCosine);
  EXPECT_DOUBLE_EQ(schedule.At(10), 1.0);
  EXPECT_NEAR(schedule.At(60), 0.55, 1e-12);
  EXPECT_NEAR(schedule.At(110), 0.1, 1e-12);
  EXPECT_NEAR(schedule.At(1000), 0.1, 1e-12);
  for (uint64_t step = 11; step <= 110; ++step) EXPECT_LT(schedule.At(step), schedule.At(step - 1));
}

TEST(Schedule, OfLinear_FallsInEqualStepsToItsFloor) {
  Schedule schedule = Of(ScheduleShape::kLinear);
  schedule.final_share = 0.2;
  EXPECT_DOUBLE_EQ(schedule.At(10), 1.0);
  EXPECT_NEAR(schedule.At(35), 0.8, 1e-12);
  EXPECT_NEAR(schedule.At(85), 0.4, 1e-12);
  EXPECT_NEAR(schedule.At(110), 0.2, 1e-12);
}

TEST(Schedule, OfPolynomial_FallsWithItsPower) {
  Schedule schedule = Of(ScheduleShape::kPolynomial);
  schedule.final_share = 0;
  EXPECT_NEAR(schedule.At(60), 0.25, 1e-12);
  schedule.power = 1;
  schedule.final_share = 0.1;
  for (uint64_t step : {10, 33, 110}) {
    EXPECT_NEAR(schedule.At(step), Of(ScheduleShape::kLinear).At(step), 1e-12);
  }
}

TEST(Schedule, OfOneCycle_RisesAndFallsByHalfCosines) {
  Schedule schedule = Of(ScheduleShape::kOneCycle);
  schedule.first_share = 0.2;
  schedule.final_share = 0;
  EXPECT_NEAR(schedule.At(0), 0.2, 1e-12);
  EXPECT_NEAR(schedule.At(5), 0.6, 1e-12);
  EXPECT_DOUBLE_EQ(schedule.At(10), 1.0);
  EXPECT_NEAR(schedule.At(60), 0.5, 1e-12);
  EXPECT_NEAR(schedule.At(110), 0.0, 1e-12);
}

TEST(Schedule, OfMultiStep_FallsAtItsMilestones) {
  Schedule schedule = Of(ScheduleShape::kMultiStep);
  schedule.milestones = {20, 50};
  schedule.decay = 0.5;
  EXPECT_DOUBLE_EQ(schedule.At(19), 1.0);
  EXPECT_DOUBLE_EQ(schedule.At(20), 0.5);
  EXPECT_DOUBLE_EQ(schedule.At(49), 0.5);
  EXPECT_DOUBLE_EQ(schedule.At(110), 0.25);
}

TEST(Schedule, ShorterThanItsWarmUp_NeverPassesThePeak) {
  for (ScheduleShape shape : {ScheduleShape::kConstant, ScheduleShape::kLinear,
                              ScheduleShape::kCosine, ScheduleShape::kPolynomial}) {
    Schedule schedule = Of(shape);
    schedule.steps = 3;
    EXPECT_DOUBLE_EQ(schedule.At(2), 0.3);
    schedule.steps = 1;
    schedule.warmup_steps = 0;
    EXPECT_DOUBLE_EQ(schedule.At(0), 1.0);
  }
}

TEST(CheckSchedule, WithAFieldOutOfRange_NamesIt) {
  EXPECT_TRUE(CheckSchedule(Of(ScheduleShape::kCosine)).ok());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto expect = [](const char* field, const auto& spoil) {
    Schedule schedule = Of(ScheduleShape::kMultiStep);
    schedule.milestones = {5, 7};
    ASSERT_TRUE(CheckSchedule(schedule).ok());
    spoil(schedule);
    const absl::Status status = CheckSchedule(schedule);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_THAT(std::string(status.message()), HasSubstr(field));
  };
  expect("peak", [](Schedule& s) { s.peak = -1; });
  expect("peak", [&](Schedule& s) { s.peak = nan; });
  expect("steps", [](Schedule& s) { s.steps = 0; });
  expect("final_share", [](Schedule& s) { s.final_share = 1.5; });
  expect("first_share", [&](Schedule& s) { s.first_share = nan; });
  expect("power", [](Schedule& s) { s.power = 0; });
  expect("decay", [](Schedule& s) { s.decay = 0; });
  expect("milestones", [](Schedule& s) { s.milestones = {}; });
  expect("milestones", [](Schedule& s) { s.milestones = {7, 7}; });
}

}  // namespace
}  // namespace geminid
