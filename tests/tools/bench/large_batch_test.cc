// A smaller version of the experiment of tools/bench/large_batch: batches of 64 and 1024.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "tools/bench/large_batch_experiment.h"

namespace geminid::bench {
namespace {

constexpr size_t kSamples = 8192, kEpochs = 30, kSmall = 64, kLarge = 16 * kSmall;
constexpr double kTolerance = 0.02;

const LargeBatchProblem& Problem() {
  static const LargeBatchProblem problem(kSamples);
  return problem;
}

using MakeRun = LargeBatchRun (*)(size_t, size_t, size_t);

double LastLoss(MakeRun make, size_t batch) {
  return Train(Problem(), make(batch, kSmall, kEpochs)).last_loss;
}

// The last loss of the large batch at the small batch's rate. The scaling rules must do better.
double LastLossWithoutScaling(MakeRun make) {
  LargeBatchRun run = make(kSmall, kSmall, kEpochs);
  run.batch = kLarge;
  return Train(Problem(), run).last_loss;
}

TEST(LargeBatch, LambWithRootScaling_LossOfSmallBatch) {
  const double small = LastLoss(LambRun, kSmall);
  EXPECT_LT(small, 0.3 * Train(Problem(), LambRun(kSmall, kSmall, 1)).first_loss);
  EXPECT_LT(LastLoss(LambRun, kLarge), (1 + kTolerance) * small);
  EXPECT_GT(LastLossWithoutScaling(LambRun), (1 + kTolerance) * small);
}

TEST(LargeBatch, LarsWithLinearScaling_LossOfSmallBatch) {
  const double small = LastLoss(LarsRun, kSmall);
  EXPECT_LT(LastLoss(LarsRun, kLarge), (1 + kTolerance) * small);
  EXPECT_GT(LastLossWithoutScaling(LarsRun), (1 + kTolerance) * small);
}

TEST(LargeBatch, Again_SameBits) {
  const LargeBatchRun run = LambRun(kLarge, kSmall, 3);
  const LargeBatchResult a = Train(Problem(), run), b = Train(LargeBatchProblem(kSamples), run);
  ASSERT_EQ(a.curve.size(), 4u);
  for (size_t i = 0; i < a.curve.size(); ++i) EXPECT_EQ(a.curve[i].loss, b.curve[i].loss);
}

TEST(LargeBatch, AbsurdRate_Diverges) {
  LargeBatchRun run = LarsRun(kSmall, kSmall, 2);
  run.optimizer.lars.learning_rate = 1e30;
  const LargeBatchResult result = Train(Problem(), run);
  EXPECT_TRUE(result.curve.empty() || !(result.last_loss < result.first_loss));
}

// For any range, each tick is a multiple of 1, 2 or 5 times a power of ten, and their number is
// moderate.
TEST(NiceTicks, AnyRange_AreNumbersThatAPersonWouldChoose) {
  const auto texts = [](double least, double most) {
    std::string text;
    for (const double tick : NiceTicks(least, most)) {
      char one[32];
      std::snprintf(one, sizeof(one), "%g ", tick);
      text += one;
    }
    return text;
  };
  EXPECT_EQ(texts(0.464, 0.663), "0.5 0.55 0.6 0.65 ");
  EXPECT_EQ(texts(0, 2.62), "0 0.5 1 1.5 2 2.5 ");
  EXPECT_EQ(texts(0, 1), "0 0.2 0.4 0.6 0.8 1 ");
  EXPECT_EQ(texts(-3, 4), "-2 0 2 4 ");
  EXPECT_EQ(texts(2, 2), "2 ");
  for (double width = 1e-6; width < 1e9; width *= 1.37) {
    const std::vector<double> ticks = NiceTicks(width / 3, width * 4 / 3);
    ASSERT_GE(ticks.size(), 2u) << width;
    ASSERT_LE(ticks.size(), 7u) << width;
    EXPECT_GE(ticks.front(), width / 3 * (1 - 1e-6));
    EXPECT_LE(ticks.back(), width * 4 / 3 * (1 + 1e-6));
    const double step = ticks[1] - ticks[0];
    const double digit = step / std::pow(10.0, std::floor(std::log10(step) + 1e-6));
    EXPECT_TRUE(std::abs(digit - 1) < 1e-6 || std::abs(digit - 2) < 1e-6 ||
                std::abs(digit - 5) < 1e-6)
        << width << ": " << step;
  }
}

TEST(LargeBatch, Picture_HasEveryCurve) {
  LargeBatchResult result;
  result.curve = {{0, 2.0}, {1000, 1.0}};
  const std::string svg = LargeBatchSvg({{"one", result}, {"two", result}}, 0.5);
  EXPECT_NE(svg.find(">one<"), std::string::npos);
  EXPECT_NE(svg.find(">two<"), std::string::npos);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
}

}  // namespace
}  // namespace geminid::bench
