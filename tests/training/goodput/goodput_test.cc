#include "training/goodput/goodput.h"

#include <gtest/gtest.h>

#include <cmath>

namespace geminid::trainer {
namespace {

// Without a fixed cost, the best total is sqrt(update * noise_scale / per_sequence).
constexpr StepModel kModel = {.seconds_per_sequence = 0.01, .update_seconds = 0.5};

TEST(Efficiency, OfALargerBatch_IsPolluxsFormula) {
  EXPECT_DOUBLE_EQ(Efficiency(30, 10, 10), 1);
  EXPECT_DOUBLE_EQ(Efficiency(30, 10, 50), 0.5);
  EXPECT_DOUBLE_EQ(Efficiency(0, 10, 40), 0.25);  // without noise, more sequences add nothing
  EXPECT_NEAR(Efficiency(1e12, 10, 1000), 1, 1e-8);
  EXPECT_GT(Efficiency(30, 10, 5), 1);
}

TEST(RowOf, AnyBatch_IsThroughputTimesEfficiency) {
  const BatchRow row = RowOf(kModel, 30, {10, 1}, {10, 5});
  EXPECT_DOUBLE_EQ(row.step_seconds, 5 * 0.1 + 0.5);
  EXPECT_DOUBLE_EQ(row.efficiency, 0.5);
  EXPECT_DOUBLE_EQ(row.goodput, 50 / 1.0 * 0.5);
}

TEST(ShapeOf, ATotal_HasTheFewestMicroBatchesThatFit) {
  const BatchLimits limits = {.multiple = 2, .most_sequences = 8, .most_total = 100};
  EXPECT_EQ(ShapeOf(1, limits), (BatchShape{2, 1}));
  EXPECT_EQ(ShapeOf(8, limits), (BatchShape{8, 1}));
  EXPECT_EQ(ShapeOf(10, limits), (BatchShape{6, 2}));
  EXPECT_EQ(ShapeOf(24, limits), (BatchShape{8, 3}));
  // If even the smallest micro-batch exceeds the limit, that one is taken.
  EXPECT_EQ(ShapeOf(4, {.multiple = 4, .most_sequences = 2}), (BatchShape{4, 1}));
}

TEST(BestBatch, WithoutAFixedPart_IsTheClosedForm) {
  for (const double noise_scale : {0.5, 30.0, 400.0}) {
    const BatchRow best = BestBatch(kModel, noise_scale, {1, 8},
                                    {.multiple = 1, .most_sequences = 1, .most_total = 1000});
    EXPECT_NEAR(static_cast<double>(best.shape.total()), std::sqrt(0.5 * noise_scale / 0.01), 1)
        << noise_scale;
  }
}

TEST(BestBatch, OfManyTotals_IsTheBestOfAll) {
  const StepModel model = {.fixed_seconds = 0.2,
                           .seconds_per_sequence = 0.01,
                           .update_seconds = 0.3,
                           .fixed_known = true};
  const BatchLimits limits = {.multiple = 3, .most_sequences = 12, .most_total = 300};
  const BatchShape now = {12, 2};
  const BatchRow best = BestBatch(model, 100, now, limits);
  for (uint64_t total = 3; total <= 300; total += 3) {
    const BatchShape shape = ShapeOf(total, limits);
    if (shape.total() > 300) continue;
    EXPECT_LE(RowOf(model, 100, now, shape).goodput, best.goodput) << total;
  }
}

TEST(BestBatch, OfLimitsThatAllowOneTotal_IsThat) {
  const BatchRow best =
      BestBatch(kModel, 1e6, {8, 1}, {.multiple = 8, .most_sequences = 8, .most_total = 8});
  EXPECT_EQ(best.shape, (BatchShape{8, 1}));
}

TEST(BestBatch, WithoutNoise_IsTheSmallest) {
  const BatchRow best =
      BestBatch(kModel, 0, {8, 4}, {.multiple = 8, .most_sequences = 8, .most_total = 512});
  EXPECT_EQ(best.shape, (BatchShape{8, 1}));
}

TEST(BatchTable, OfABatch_HasPowersOfTwoBesideIt) {
  const auto rows =
      BatchTable(kModel, 30, {8, 4}, {.multiple = 8, .most_sequences = 8, .most_total = 128});
  std::vector<uint64_t> totals;
  for (const BatchRow& row : rows) totals.push_back(row.shape.total());
  EXPECT_EQ(totals, (std::vector<uint64_t>{8, 16, 32, 64, 128}));
  EXPECT_DOUBLE_EQ(rows[2].efficiency, 1);
}

TEST(RateFactor, OfEitherRule_IsTheClosedForm) {
  EXPECT_DOUBLE_EQ(RateFactor(RateRule::kSquareRoot, 30, 8, 32), 2);
  // With noise alone, the rate grows like the batch. Without noise, the rate stays.
  EXPECT_NEAR(RateFactor(RateRule::kAdaScale, 1e12, 8, 32), 4, 1e-6);
  EXPECT_DOUBLE_EQ(RateFactor(RateRule::kAdaScale, 0, 8, 32), 1);
  EXPECT_DOUBLE_EQ(RateFactor(RateRule::kAdaScale, 8, 8, 24), 1.5);
  EXPECT_DOUBLE_EQ(RateFactor(RateRule::kAdaScale, 8, 24, 24), 1);
}

// AdaScale's gain is the efficiency times the batch's growth: the number of base steps that one
// step is worth.
TEST(RateFactor, OfAdaScale_IsTheStepsThatALargerOneIsWorth) {
  for (const double batch : {8.0, 16.0, 100.0}) {
    EXPECT_NEAR(RateFactor(RateRule::kAdaScale, 30, 8, batch), Efficiency(30, 8, batch) * batch / 8,
                1e-12);
  }
}

}  // namespace
}  // namespace geminid::trainer
