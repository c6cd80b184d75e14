#include "training/nn/parallel/tensor/parallel_cross_entropy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/model/cross_entropy/cross_entropy.h"
#include "tests/training/nn/parallel/tensor/grids.h"
#include "tests/training/nn/parallel/tensor/layer_traffic.h"

namespace geminid::collectives {
namespace {

using kernels::kIgnoredTarget;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kScale = 0.125F;

// Logits whose columns beyond the vocabulary have large values that must not count.
struct Logits {
  LogitsShape shape;
  Matrix logits;
  std::vector<int32_t> targets;

  template <class Draw>
  Logits(const TensorGrid& grid, const LogitsShape& given, std::mt19937& random, Draw draw)
      : shape(given), logits(shape.tokens, PaddedVocabulary(grid, shape.vocabulary)) {
    for (size_t t = 0; t < shape.tokens; ++t) {
      for (size_t v = 0; v < logits.columns; ++v) {
        logits.at(t, v) = v < shape.vocabulary ? draw() : 1e30F;
      }
      targets.push_back(t % 5 == 4 ? kIgnoredTarget
                                   : static_cast<int32_t>(random() % shape.vocabulary));
    }
  }
};

struct Outcome {
  Block block;
  ParallelCrossEntropy::Loss loss;
  std::vector<float> gradient;
  uint64_t forward_bytes = 0, backward_bytes = 0;
  int partners = 0;
};

std::vector<Outcome> RunAll(const GridCase& grid, const Logits& whole) {
  std::vector<Outcome> outcomes(static_cast<size_t>(grid.ranks));
  OnGrid(grid, [&](TensorGroups& groups, LinearScratch& scratch) {
    Outcome& outcome = outcomes[static_cast<size_t>(groups.rank())];
    auto layer = ParallelCrossEntropy::Make(groups, whole.shape, scratch);
    ASSERT_TRUE(layer.ok()) << layer.status();
    outcome.block = (*layer)->block();
    const std::vector<int32_t> targets = Cut(whole.targets, outcome.block.rows);
    std::vector<float> statistics((*layer)->statistics(), kNaN);
    outcome.gradient = Cut(whole.logits, outcome.block);  // the gradient overwrites the logits
    const auto loss = (*layer)->Forward(outcome.gradient, targets, statistics);
    ASSERT_TRUE(loss.ok()) << loss.status();
    outcome.loss = *loss;
    outcome.forward_bytes = groups.received().bytes;
    ASSERT_EQ((*layer)->Backward(outcome.gradient, targets, statistics, kScale, outcome.gradient),
              absl::OkStatus());
    outcome.backward_bytes = groups.received().bytes - outcome.forward_bytes;
    outcome.partners = groups.received().partners;
  });
  return outcomes;
}

class ParallelCrossEntropyOf : public testing::TestWithParam<GridCase> {
 protected:
  static constexpr LogitsShape kShape = {.tokens = 72, .vocabulary = 37};
};

// Exponentials of 0 and of less than -104 are 1 and 0. So sums are whole numbers, and the kernel of
// one process gives the same bits.
TEST_P(ParallelCrossEntropyOf, WholeNumbers_AreTheDenseLossBitForBit) {
  std::mt19937 random(3);
  const Logits whole(GetParam().grid(), kShape, random,
                     [&] { return static_cast<float>(random() % 3) * 256.0F - 256.0F; });
  Matrix gradient = whole.logits;
  kernels::CrossEntropyResult result;
  ASSERT_EQ(kernels::CrossEntropy<float>({.tokens = kShape.tokens,
                                          .vocabulary = kShape.vocabulary,
                                          .row_stride = gradient.columns},
                                         gradient.elements.data(), whole.targets.data(), kScale,
                                         gradient.elements.data(), nullptr, &result),
            kernels::Status::kOk);
  for (const Outcome& rank : RunAll(GetParam(), whole)) {
    EXPECT_EQ(rank.gradient, Cut(gradient, rank.block));
    EXPECT_EQ(rank.loss.counted, result.counted);
    // The sums are in float64, in another order.
    EXPECT_NEAR(rank.loss.sum, result.loss_sum, 1e-12 * result.loss_sum);
  }
}

TEST_P(ParallelCrossEntropyOf, RandomNumbers_AreTheDenseLossToRounding) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 3);
  const Logits whole(GetParam().grid(), kShape, random, [&] { return normal(random); });
  double loss = 0;
  Matrix gradient(kShape.tokens, whole.logits.columns), error = gradient;
  for (size_t t = 0; t < kShape.tokens; ++t) {
    if (whole.targets[t] == kIgnoredTarget) continue;
    double sum = 0;
    for (size_t v = 0; v < kShape.vocabulary; ++v) sum += std::exp(double{whole.logits.at(t, v)});
    for (size_t v = 0; v < kShape.vocabulary; ++v) {
      const double share = std::exp(double{whole.logits.at(t, v)}) / sum;
      const bool is_target = static_cast<int32_t>(v) == whole.targets[t];
      gradient.at(t, v) = static_cast<float>(kScale * (share - is_target));
      // The errors of the sum, of the exponent, which is at most 24, and of rounding the result.
      error.at(t, v) = static_cast<float>(
          0x1p-24 * kScale * (share * (kShape.vocabulary + 24) + std::abs(share - is_target)));
    }
    loss += std::log(sum) - double{whole.logits.at(t, static_cast<size_t>(whole.targets[t]))};
  }
  for (const Outcome& rank : RunAll(GetParam(), whole)) {
    const std::vector<float> want = Cut(gradient, rank.block), within = Cut(error, rank.block);
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(rank.gradient[i], want[i], within[i]) << i;
    }
    EXPECT_NEAR(rank.loss.sum, loss, 0x1p-24 * kShape.vocabulary * kShape.tokens);
    EXPECT_EQ(rank.loss.counted, 58u);
  }
}

TEST_P(ParallelCrossEntropyOf, Blocks_HoldEachLogitOnce) {
  const TensorGrid grid = GetParam().grid();
  Matrix held(kShape.tokens, PaddedVocabulary(grid, kShape.vocabulary));
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const Block block = *BlockOf(grid, kShape, rank);
    for (size_t r = 0; r < block.rows.count; ++r) {
      for (size_t c = 0; c < block.columns.count; ++c) {
        held.at(block.rows.begin + r, block.columns.begin + c) += 1;
      }
    }
    const LinearShape maker = {.tokens = kShape.tokens, .in = 24, .out = held.columns};
    EXPECT_EQ(block, BlocksOf(grid, LinearRole::kFirst, maker, rank)->y);
  }
  EXPECT_EQ(held.elements, std::vector<float>(held.elements.size(), 1));
}

INSTANTIATE_TEST_SUITE_P(Grids, ParallelCrossEntropyOf, testing::ValuesIn(AllGrids()),
                         [](const auto& parameter) { return parameter.param.name(); });

class ParallelCrossEntropyTraffic : public testing::TestWithParam<GridCase> {};

// Numbers of few tokens are exchanged directly, those of many in slices: both are counted.
TEST_P(ParallelCrossEntropyTraffic, BytesAndPartners_AreTheClosedForms) {
  for (const LogitsShape& shape : {LogitsShape{72, 37}, LogitsShape{73728, 2}}) {
    std::mt19937 random(7);
    const Logits whole(GetParam().grid(), shape, random, WholeNumbers(random, 8));
    const LayerTraffic expected = TrafficOf(GetParam().grid(), shape);
    for (const Outcome& rank : RunAll(GetParam(), whole)) {
      EXPECT_EQ(static_cast<double>(rank.forward_bytes), expected.forward_elements * sizeof(float));
      EXPECT_EQ(rank.backward_bytes, 0u);
      EXPECT_EQ(rank.partners, expected.partners);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, ParallelCrossEntropyTraffic, testing::ValuesIn(TrafficGrids()),
                         [](const auto& parameter) { return parameter.param.name(); });

// Ranks whose columns are all beyond the vocabulary take part and contribute nothing.
TEST(ParallelCrossEntropy, MoreRanksThanWords_GiveTheLossOfTheWords) {
  const GridCase grid = {TensorMode::k1D, 4};
  std::mt19937 random(1);
  Logits whole(grid.grid(), {.tokens = 1, .vocabulary = 2}, random, [] { return 7.0F; });
  whole.targets = {1};
  for (const Outcome& rank : RunAll(grid, whole)) {
    EXPECT_NEAR(rank.loss.sum, std::log(2.0), 1e-7);
    const float want = rank.block.columns.begin < 2 ? kScale / 2 : 0;
    EXPECT_EQ(std::abs(rank.gradient.front()), want);
  }
}

TEST(ParallelCrossEntropy, TargetThatIsNoWord_IsRefusedBeforeAnythingIsSent) {
  OnGrid({TensorMode::k1D, 2}, [](TensorGroups& groups, LinearScratch& scratch) {
    auto layer = ParallelCrossEntropy::Make(groups, {.tokens = 2, .vocabulary = 3}, scratch);
    ASSERT_TRUE(layer.ok()) << layer.status();
    std::vector<float> logits(4), statistics(4);
    const auto refused = (*layer)->Forward(logits, std::vector<int32_t>{0, 3}, statistics);
    EXPECT_EQ(refused.status(),
              absl::InvalidArgumentError("token 1 has the target 3; the vocabulary has 3 words"));
    EXPECT_EQ(groups.received().bytes, 0u);
  });
}

}  // namespace
}  // namespace geminid::collectives
