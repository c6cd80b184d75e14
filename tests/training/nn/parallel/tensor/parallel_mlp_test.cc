#include "training/nn/parallel/tensor/parallel_mlp.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "tests/training/nn/parallel/tensor/blocks.h"

namespace geminid::collectives {
namespace {

constexpr size_t kTokens = 36, kHidden = 36, kInner = 72;

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Value and derivative of GELU in its tanh form.
struct Gelu {
  double value, derivative;
  explicit Gelu(double x) {
    const double c = std::sqrt(8 / std::acos(-1.0));  // 2 sqrt(2/pi)
    const double s = Sigmoid(c * (x + 0.044715 * x * x * x));
    value = x * s;
    derivative = s + x * s * (1 - s) * c * (1 + 3 * 0.044715 * x * x);
  }
};

// The whole MLP in float64.
BlockResults Solve(Activation activation, const BlockGiven& given) {
  const Wide x(given.x), w1(given.w1), w2(given.w2), dy(given.dy);
  const Wide h = LinearForward(x, w1, Wide(given.b1));
  Wide inner(h.rows, kInner);
  const bool is_gelu = activation == Activation::kGelu;
  for (size_t t = 0; t < h.rows; ++t) {
    for (size_t c = 0; c < kInner; ++c) {
      const double gate = h.at(t, c);
      inner.at(t, c) = is_gelu ? Gelu(gate).value : gate * Sigmoid(gate) * h.at(t, kInner + c);
    }
  }
  const Wide dinner = LinearBackwardInput(dy, w2);
  Wide dh(h.rows, h.columns);
  for (size_t t = 0; t < h.rows; ++t) {
    for (size_t c = 0; c < kInner; ++c) {
      const double gate = h.at(t, c), s = Sigmoid(gate), d = dinner.at(t, c);
      if (is_gelu) {
        dh.at(t, c) = d * Gelu(gate).derivative;
        continue;
      }
      dh.at(t, c) = d * h.at(t, kInner + c) * s * (1 + gate * (1 - s));
      dh.at(t, kInner + c) = d * gate * s;
    }
  }
  return {.y = Rounded(LinearForward(inner, w2, Wide(given.b2))),
          .dx = Rounded(LinearBackwardInput(dh, w1)),
          .dw1 = Rounded(LinearBackwardWeight(dh, x)),
          .db1 = Rounded(LinearBackwardBias(dh)),
          .dw2 = Rounded(LinearBackwardWeight(dy, inner)),
          .db2 = Rounded(LinearBackwardBias(dy))};
}

class ParallelMlpOf : public testing::TestWithParam<std::tuple<GridCase, Activation>> {
 protected:
  const GridCase& grid() const { return std::get<0>(GetParam()); }
  Activation activation() const { return std::get<1>(GetParam()); }
  bool is_gelu() const { return activation() == Activation::kGelu; }
  size_t first_outputs() const { return is_gelu() ? kInner : 2 * kInner; }
  MlpOptions options() const {
    return {.activation = activation(),
            .tokens = kTokens,
            .hidden = kHidden,
            .inner = kInner,
            .bias = true};
  }

  template <class Draw>
  BlockGiven Given(Draw draw) const {
    return {.x = Drawn(kTokens, kHidden, draw),
            .w1 = Drawn(first_outputs(), kHidden, draw),
            .b1 = Drawn(1, first_outputs(), draw),
            .w2 = Drawn(kHidden, kInner, draw),
            .b2 = Drawn(1, kHidden, draw),
            .dy = Drawn(kTokens, kHidden, draw)};
  }
};

// The activation's inputs are multiples of 16, or of 128 for the gate. There sigmoids are 0, 1/2 or
// 1, so every sum is exact.
TEST_P(ParallelMlpOf, WholeNumbers_AreTheDenseBlockBitForBit) {
  std::mt19937 random(7);
  BlockGiven given = Given(WholeNumbers(random, 1));
  const float factor = is_gelu() ? 16 : 128;
  for (size_t i = 0; i < kInner * kHidden; ++i) given.w1.elements[i] *= factor;
  for (size_t i = 0; i < kInner; ++i) given.b1.elements[i] *= factor;
  const BlockResults want = Solve(activation(), given);
  for (const BlockOutcome& rank : RunBlock<ParallelMlp<float>>(grid(), options(), given)) {
    ExpectEqual(want, rank);
  }
}

TEST_P(ParallelMlpOf, RandomNumbers_AreTheDenseBlockToRounding) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  BlockGiven given = Given([&] { return normal(random); });
  for (float& weight : given.w1.elements) weight /= 6;  // so that activations are not linear
  const BlockResults want = Solve(activation(), given);
  for (const BlockOutcome& rank : RunBlock<ParallelMlp<float>>(grid(), options(), given)) {
    ExpectClose(want, rank);
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, ParallelMlpOf,
                         testing::Combine(testing::ValuesIn(AllGrids()),
                                          testing::Values(Activation::kGelu, Activation::kSwiglu)),
                         [](const auto& parameters) {
                           const bool is_gelu = std::get<1>(parameters.param) == Activation::kGelu;
                           return std::get<0>(parameters.param).name() +
                                  (is_gelu ? "_Gelu" : "_Swiglu");
                         });

class ParallelMlpTraffic : public ParallelMlpOf {};

// The tensors are large enough that all-reduces are sliced, which the formulas count.
TEST_P(ParallelMlpTraffic, BytesPartnersAndWhatIsKept_AreTheClosedForms) {
  constexpr size_t kMany = 576;
  MlpOptions options = this->options();
  options.tokens = kMany;
  options.bias = false;
  std::mt19937 random(7);
  BlockGiven given = Given(WholeNumbers(random, 1));
  given.x = Drawn(kMany, kHidden, WholeNumbers(random, 1));
  given.dy = Drawn(kMany, kHidden, WholeNumbers(random, 1));
  for (const BlockOutcome& rank : RunBlock<ParallelMlp<float>>(grid(), options, given)) {
    ExpectTraffic(grid(), {kMany, kHidden, first_outputs()}, {kMany, kInner, kHidden}, rank);
    EXPECT_EQ(rank.kept * static_cast<size_t>(grid().ranks), kMany * first_outputs());
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, ParallelMlpTraffic,
                         testing::Combine(testing::ValuesIn(TrafficGrids()),
                                          testing::Values(Activation::kGelu, Activation::kSwiglu)));

TEST(ParallelMlp, SpansOfTheSecondLayer_AreRefusedBeforeTheFirstSends) {
  OnGrid({TensorMode::k3D, 8}, [](TensorGroups& groups, LinearScratch& scratch) {
    auto mlp = ParallelMlp<float>::Make(groups, {.tokens = 4, .hidden = 4, .inner = 4}, scratch);
    ASSERT_TRUE(mlp.ok()) << mlp.status();
    std::vector<float> x(2), w(2), short_w(1), kept(2), y(2);
    EXPECT_EQ((*mlp)->Forward(x, {w, {}, short_w, {}}, kept, y).message(),
              "W2 has 1 elements; this rank's block of it has 2");
    EXPECT_EQ((*mlp)->Backward(x, {w, {}, w, {}}, kept, y, {x, short_w, {}, w, {}}).message(),
              "dW1 has 1 elements; this rank's block of it has 2");
    EXPECT_EQ(groups.received().bytes, 0u);
  });
}

// On a line of two ranks, the first has the first halves of both sections.
TEST(FusedOutputs, EachRank_HasItsPartOfEverySection) {
  const TensorGrid line = *TensorGrid::Make(TensorMode::k1D, 2);
  const FusedOutputs outputs = *FusedOutputs::Make(line, {4, 2});
  std::vector<size_t> features;
  for (size_t i = 0; i < outputs.outputs(); ++i) features.push_back(outputs.FeatureOf(i));
  EXPECT_EQ(features, (std::vector<size_t>{0, 1, 4, 2, 3, 5}));
  EXPECT_EQ(outputs.PartOf(0), (Range{0, 2}));
  EXPECT_EQ(outputs.PartOf(1), (Range{2, 1}));
  EXPECT_EQ(FusedOutputs::Make(line, {4, 3}).status().message(),
            "3 features cannot be sharded for 1d tensor parallelism over 2 ranks: they must be "
            "divisible by 2");
}

}  // namespace
}  // namespace geminid::collectives
