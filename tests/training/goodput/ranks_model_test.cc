#include "training/goodput/ranks_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>

namespace geminid::trainer {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::array kNumbers = {1, 2, 4};

TEST(GoodputByRanks, OfOneMeasuredNumber_IsProportional) {
  const auto rows = GoodputByRanks({{2, 0.5}}, kNumbers);
  ASSERT_THAT(rows, SizeIs(3));
  EXPECT_EQ(rows[0].ranks, 1);
  EXPECT_DOUBLE_EQ(rows[0].goodput, 1);
  EXPECT_DOUBLE_EQ(rows[1].goodput, 2);
  EXPECT_DOUBLE_EQ(rows[2].goodput, 4);
}

TEST(GoodputByRanks, OfTwoMeasuredNumbers_HasTheirSerialPart) {
  const auto rows = GoodputByRanks({{1, 1.0}, {2, 0.6}}, kNumbers);  // 0.2 + 0.8 / ranks
  ASSERT_THAT(rows, SizeIs(3));
  EXPECT_DOUBLE_EQ(rows[0].goodput, 1);
  EXPECT_DOUBLE_EQ(rows[1].goodput, 1 / 0.6);
  EXPECT_NEAR(rows[2].goodput, 1 / 0.4, 1e-9);
}

TEST(GoodputByRanks, OfANumberThatWasMeasured_IsWhatWasMeasured) {
  const auto rows = GoodputByRanks({{1, 1.0}, {2, 2.0}, {4, 0.7}}, kNumbers);
  EXPECT_DOUBLE_EQ(rows[1].goodput, 0.5);
  EXPECT_DOUBLE_EQ(rows[2].goodput, 1 / 0.7);
}

// A negative time would predict unlimited goodput.
TEST(GoodputByRanks, WhereMoreRanksWereSlower_PromisesNothingOfEvenMore) {
  const auto rows = GoodputByRanks({{1, 1.0}, {2, 1.5}}, kNumbers);
  EXPECT_LE(rows[2].goodput, 1);
}

TEST(GoodputByRanks, WithoutATimeThatCanBe_IsNotKnown) {
  EXPECT_THAT(GoodputByRanks({}, kNumbers), IsEmpty());
  EXPECT_THAT(
      GoodputByRanks({{1, 0}, {0, 1}, {2, std::numeric_limits<double>::quiet_NaN()}}, kNumbers),
      IsEmpty());
}

TEST(SequenceTimer, IsTheMedianOfStepsButTheFirst) {
  SequenceTimer timer;
  timer.Add(4, 1000);
  for (int step = 0; step < 7; ++step) timer.Add(4, 2);
  EXPECT_EQ(timer.Median(), std::nullopt);
  timer.Add(4, 800);
  EXPECT_EQ(timer.Median(), 0.5);
}

TEST(SequenceTimer, ForgetsOldSteps) {
  SequenceTimer timer;
  for (int step = 0; step < 100; ++step) timer.Add(1, 1);
  for (int step = 0; step < 100; ++step) timer.Add(1, 3);
  EXPECT_EQ(timer.Median(), 3);
  timer.Add(0, 1);  // a step without sequences, then one without time
  timer.Add(1, 0);
  EXPECT_EQ(timer.Median(), 3);
}

}  // namespace
}  // namespace geminid::trainer
