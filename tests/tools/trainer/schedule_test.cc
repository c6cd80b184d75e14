#include "tools/trainer/schedule.h"

#include <gtest/gtest.h>

namespace geminid::trainer {
namespace {

TEST(Schedule, InWarmUp_RisesLinearlyToThePeak) {
  const Schedule schedule = {.peak = 2.0, .warmup_steps = 4, .steps = 100};
  EXPECT_DOUBLE_EQ(schedule.At(0), 0.5);
  EXPECT_DOUBLE_EQ(schedule.At(2), 1.5);
  EXPECT_DOUBLE_EQ(schedule.At(3), 2.0);
  EXPECT_DOUBLE_EQ(schedule.At(4), 2.0);
  EXPECT_DOUBLE_EQ(schedule.At(99), 2.0);
}

TEST(Schedule, OfCosine_FallsToATenthAtTheLastStep) {
  const Schedule schedule = {
      .shape = Schedule::Shape::kCosine, .peak = 1.0, .warmup_steps = 10, .steps = 111};
  EXPECT_DOUBLE_EQ(schedule.At(10), 1.0);
  EXPECT_NEAR(schedule.At(60), 0.55, 1e-12);
  EXPECT_NEAR(schedule.At(110), 0.1, 1e-12);
  for (uint64_t step = 11; step <= 110; ++step) EXPECT_LT(schedule.At(step), schedule.At(step - 1));
}

TEST(Schedule, ShorterThanItsWarmUp_NeverPassesThePeak) {
  const Schedule schedule = {
      .shape = Schedule::Shape::kCosine, .peak = 1.0, .warmup_steps = 10, .steps = 3};
  EXPECT_DOUBLE_EQ(schedule.At(2), 0.3);
  const Schedule none = {.shape = Schedule::Shape::kCosine, .peak = 1.0, .steps = 1};
  EXPECT_DOUBLE_EQ(none.At(0), 1.0);
}

TEST(ParseScheduleShape, OfAnUnknownName_IsRefused) {
  EXPECT_EQ(ParseScheduleShape("linear").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace geminid::trainer
