#include "geminid/loss_scaler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace geminid {
namespace {

using testing::HasSubstr;

LossScaler Scaler() {
  return LossScaler({.initial_scale = 8, .growth_interval = 3, .min_scale = 2, .max_scale = 16});
}

void Steps(LossScaler* scaler, const char* outcomes) {
  for (const char* outcome = outcomes; *outcome != 0; ++outcome) scaler->OnStep(*outcome == 'x');
}

TEST(LossScaler, OfManyGoodSteps_GrowsOncePerIntervalToItsLimit) {
  LossScaler scaler = Scaler();
  Steps(&scaler, "..");
  EXPECT_EQ(scaler.scale(), 8);
  Steps(&scaler, ".");
  EXPECT_EQ(scaler.scale(), 16);
  Steps(&scaler, "......");
  EXPECT_EQ(scaler.scale(), 16);
}

TEST(LossScaler, OfOneOverflow_WaitsForASecond) {
  LossScaler scaler = Scaler();
  Steps(&scaler, "x");
  EXPECT_EQ(scaler.scale(), 8);
  Steps(&scaler, ".x");  // a good step between two overflows does not reset the count
  EXPECT_EQ(scaler.scale(), 4);
}

TEST(LossScaler, OfOverflowsInARow_FallsAtEachDownToItsLimit) {
  LossScaler scaler = Scaler();
  Steps(&scaler, "xxx");
  EXPECT_EQ(scaler.scale(), 2);
  Steps(&scaler, "xx");
  EXPECT_EQ(scaler.scale(), 2);
}

TEST(LossScaler, AfterGrowth_AllowsOneOverflowAgain) {
  LossScaler scaler = Scaler();
  Steps(&scaler, "xx");
  EXPECT_EQ(scaler.scale(), 4);
  Steps(&scaler, "...");
  EXPECT_EQ(scaler.scale(), 8);
  Steps(&scaler, "x");
  EXPECT_EQ(scaler.scale(), 8);
}

TEST(LossScaler, OverflowAmongGoodSteps_StartsTheIntervalAgain) {
  LossScaler scaler = Scaler();
  Steps(&scaler, "..x..");
  EXPECT_EQ(scaler.scale(), 8);
  Steps(&scaler, ".");
  EXPECT_EQ(scaler.scale(), 16);
}

TEST(LossScaler, RestoredInTheMiddle_GoesOnAsItWouldHave) {
  LossScaler whole = Scaler();
  Steps(&whole, "x..");
  LossScaler resumed = Scaler();
  resumed.Restore(whole.state());
  for (LossScaler* scaler : {&whole, &resumed}) Steps(scaler, ".x..x.");
  EXPECT_EQ(resumed.state(), whole.state());
}

TEST(LossScaler, OfAFixedScale_NeverChanges) {
  ASSERT_TRUE(CheckLossScaler(FixedLossScale(1024)).ok());
  LossScaler scaler(FixedLossScale(1024));
  for (int i = 0; i < 2000; ++i) scaler.OnStep(i < 10);
  EXPECT_EQ(scaler.scale(), 1024);
}

TEST(CheckLossScaler, WithAnOptionOutOfRange_NamesIt) {
  EXPECT_TRUE(CheckLossScaler({}).ok());
  const auto expect = [](const char* option, const LossScalerOptions& options) {
    const absl::Status status = CheckLossScaler(options);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << option;
    EXPECT_THAT(std::string(status.message()), HasSubstr(option));
  };
  expect("initial_scale", {.initial_scale = 0.5});
  expect("initial_scale", {.initial_scale = std::numeric_limits<double>::quiet_NaN()});
  expect("growth_factor", {.growth_factor = 0.5});
  expect("backoff_factor", {.backoff_factor = 0});
  expect("backoff_factor", {.backoff_factor = 1.5});
  expect("growth_interval", {.growth_interval = 0});
  expect("hysteresis", {.hysteresis = 0});
  expect("min_scale", {.min_scale = 0});
  expect("max_scale", {.max_scale = std::numeric_limits<double>::infinity()});
}

}  // namespace
}  // namespace geminid
