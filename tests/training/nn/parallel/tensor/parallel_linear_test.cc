// Compares every mode with the dense layer, computed one element at a time in float64 from the
// whole matrices. Blocks are slices of these matrices, so each depth and each rank has different
// data.
#include "training/nn/parallel/tensor/parallel_linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/training/nn/parallel/tensor/grids.h"
#include "training/nn/parallel/tensor/tensor_traffic.h"

namespace geminid::collectives {
namespace {

struct Dense {
  Matrix x, w, b, dy;                        // inputs; b has one row
  Matrix y, dx, dw, db;                      // expected results
  Matrix y_size, dx_size, dw_size, db_size;  // sums of the terms' absolute values
};

// Sets sum and size at (r, c) from `terms` products.
template <class Term>
void Sum(Matrix& sum, Matrix& size, size_t r, size_t c, size_t terms, double start,
         const Term& term) {
  double total = start, magnitude = std::abs(start);
  for (size_t t = 0; t < terms; ++t) {
    total += term(t);
    magnitude += std::abs(term(t));
  }
  sum.elements[r * sum.columns + c] = static_cast<float>(total);
  size.elements[r * sum.columns + c] = static_cast<float>(magnitude);
}

void Solve(Dense& d) {
  const size_t tokens = d.x.rows, in = d.x.columns, out = d.w.rows;
  for (size_t r = 0; r < tokens; ++r) {
    for (size_t c = 0; c < out; ++c) {
      Sum(d.y, d.y_size, r, c, in, d.b.at(0, c),
          [&](size_t t) { return double{d.x.at(r, t)} * d.w.at(c, t); });
    }
    for (size_t c = 0; c < in; ++c) {
      Sum(d.dx, d.dx_size, r, c, out, 0,
          [&](size_t t) { return double{d.dy.at(r, t)} * d.w.at(t, c); });
    }
  }
  for (size_t r = 0; r < out; ++r) {
    for (size_t c = 0; c < in; ++c) {
      Sum(d.dw, d.dw_size, r, c, tokens, 0,
          [&](size_t t) { return double{d.dy.at(t, r)} * d.x.at(t, c); });
    }
    Sum(d.db, d.db_size, 0, r, tokens, 0, [&](size_t t) { return double{d.dy.at(t, r)}; });
  }
}

template <typename T>
std::vector<T> As(const std::vector<float>& values) {
  if constexpr (std::is_same_v<T, float>) {
    return values;
  } else {
    std::vector<T> narrow;
    for (const float value : values) narrow.push_back(T::FromFloat(value));
    return narrow;
  }
}

template <class Draw>
Dense MakeDense(const LinearShape& shape, Draw draw) {
  const auto matrix = [](size_t rows, size_t columns) { return Matrix(rows, columns); };
  Dense d;
  d.x = d.dx = d.dx_size = matrix(shape.tokens, shape.in);
  d.w = d.dw = d.dw_size = matrix(shape.out, shape.in);
  d.b = d.db = d.db_size = matrix(1, shape.out);
  d.y = d.dy = d.y_size = matrix(shape.tokens, shape.out);
  for (Matrix* m : {&d.x, &d.w, &d.b, &d.dy}) {
    for (float& element : m->elements) element = draw();
  }
  Solve(d);
  return d;
}

// Numbers so small that every sum is exact in fp32.
Dense WholeDense(const LinearShape& shape) {
  std::mt19937 random(7);
  return MakeDense(shape, WholeNumbers(random, 8));
}

Dense RandomDense(const LinearShape& shape) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  return MakeDense(shape, [&] { return normal(random); });
}

class ParallelLinearOf : public testing::TestWithParam<std::tuple<GridCase, LinearRole, bool>> {
 protected:
  TensorGrid grid() const { return std::get<0>(GetParam()).grid(); }
  LinearOptions options() const {
    // All grids' sides and depths divide these sizes, which differ from each other.
    return {.role = std::get<1>(GetParam()),
            .shape = {.tokens = 36, .in = 24, .out = 72},
            .bias = std::get<2>(GetParam())};
  }

  // Runs forward and backward on every rank, and passes the results to `check` with the blocks.
  struct Outcome {
    LinearBlocks blocks;
    std::vector<float> y, dx, dw, db;
    uint64_t forward_bytes = 0, backward_bytes = 0;
    int partners = 0;
  };
  template <typename T = float>
  std::vector<Outcome> Run(const Dense& d, const LinearOptions& options) const {
    std::vector<Outcome> outcomes(static_cast<size_t>(grid().ranks()));
    OnGrid(std::get<0>(GetParam()), [&](TensorGroups& groups, LinearScratch& scratch) {
      RunRank<T>(groups, scratch, d, options, outcomes[static_cast<size_t>(groups.rank())]);
    });
    return outcomes;
  }

 private:
  template <typename T>
  void RunRank(TensorGroups& groups, LinearScratch& scratch, const Dense& d,
               const LinearOptions& options, Outcome& outcome) const {
    auto layer = ParallelLinear<T>::Make(groups, options, scratch);
    ASSERT_TRUE(layer.ok()) << layer.status();
    const LinearBlocks& blocks = outcome.blocks = (*layer)->blocks();
    const std::vector<T> x = As<T>(Cut(d.x, blocks.x)), w = As<T>(Cut(d.w, blocks.w));
    const std::vector<T> dy = As<T>(Cut(d.dy, blocks.y));
    std::vector<float> bias = Cut(d.b, {{0, 1}, blocks.bias});
    outcome.db.assign(bias.size(), NAN);
    if (!options.bias) bias.clear();
    if (!options.bias) outcome.db.clear();
    outcome.y.assign(blocks.y.elements(), NAN);
    outcome.dx.assign(x.size(), NAN);
    outcome.dw.assign(w.size(), NAN);
    ASSERT_EQ((*layer)->Forward(x, w, bias, outcome.y), absl::OkStatus());
    outcome.forward_bytes = groups.received().bytes;
    ASSERT_EQ((*layer)->Backward(x, w, dy, {.x = outcome.dx, .w = outcome.dw, .bias = outcome.db}),
              absl::OkStatus());
    outcome.backward_bytes = groups.received().bytes - outcome.forward_bytes;
    outcome.partners = groups.received().partners;
  }
};

// As they are exact in bf16, what comes out is the same of both types: no sum is rounded to bf16.
TEST_P(ParallelLinearOf, WholeNumbers_AreTheDenseLayersBitForBit) {
  Dense d = WholeDense(options().shape);
  if (!options().bias) std::fill(d.b.elements.begin(), d.b.elements.end(), 0.0f);
  Solve(d);
  std::vector<Outcome> ranks = Run(d, options());
  for (Outcome& narrow : Run<kernels::BFloat16>(d, options())) ranks.push_back(std::move(narrow));
  for (const Outcome& rank : ranks) {
    EXPECT_EQ(rank.y, Cut(d.y, rank.blocks.y));
    EXPECT_EQ(rank.dx, Cut(d.dx, rank.blocks.x));
    EXPECT_EQ(rank.dw, Cut(d.dw, rank.blocks.w));
    if (options().bias) {
      EXPECT_EQ(rank.db, Cut(d.db, {{0, 1}, rank.blocks.bias}));
    }
  }
}

// Each of n additions errs by half a unit of 2^-23 of the sum of the terms' absolute values.
void ExpectNear(const std::vector<float>& got, const std::vector<float>& sum,
                const std::vector<float>& size, size_t terms) {
  ASSERT_EQ(got.size(), sum.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], sum[i], static_cast<double>(terms + 2) * 0x1p-24 * size[i]) << i;
  }
}

TEST_P(ParallelLinearOf, RandomNumbers_AreTheDenseLayersToRounding) {
  Dense d = RandomDense(options().shape);
  if (!options().bias) std::fill(d.b.elements.begin(), d.b.elements.end(), 0.0f);
  Solve(d);
  const auto [tokens, in, out] = options().shape;
  for (const Outcome& rank : Run(d, options())) {
    ExpectNear(rank.y, Cut(d.y, rank.blocks.y), Cut(d.y_size, rank.blocks.y), in);
    ExpectNear(rank.dx, Cut(d.dx, rank.blocks.x), Cut(d.dx_size, rank.blocks.x), out);
    ExpectNear(rank.dw, Cut(d.dw, rank.blocks.w), Cut(d.dw_size, rank.blocks.w), tokens);
  }
}

// Every element of every matrix is on as many ranks as the documentation says, at least one.
TEST_P(ParallelLinearOf, Blocks_CoverTheMatricesEvenly) {
  const auto held = [&](auto of, size_t rows, size_t columns) {
    Matrix count(rows, columns);
    for (int rank = 0; rank < grid().ranks(); ++rank) {
      const Block block = of(*BlocksOf(grid(), options().role, options().shape, rank));
      for (size_t r = 0; r < block.rows.count; ++r) {
        for (size_t c = 0; c < block.columns.count; ++c) {
          count.at(block.rows.begin + r, block.columns.begin + c) += 1;
        }
      }
    }
    return count.elements;
  };
  const auto [tokens, in, out] = options().shape;
  EXPECT_EQ(held([](const LinearBlocks& b) { return b.x; }, tokens, in),
            std::vector<float>(tokens * in, 1));
  EXPECT_EQ(held([](const LinearBlocks& b) { return b.y; }, tokens, out),
            std::vector<float>(tokens * out, 1));
  EXPECT_EQ(held([](const LinearBlocks& b) { return b.w; }, out, in),
            std::vector<float>(out * in, static_cast<float>(grid().depth())));
}

INSTANTIATE_TEST_SUITE_P(Grids, ParallelLinearOf,
                         testing::Combine(testing::ValuesIn(AllGrids()),
                                          testing::Values(LinearRole::kFirst, LinearRole::kSecond),
                                          testing::Bool()),
                         [](const auto& parameters) {
                           std::string name = std::get<0>(parameters.param).name();
                           name += std::get<1>(parameters.param) == LinearRole::kFirst ? "_First"
                                                                                       : "_Second";
                           return name + (std::get<2>(parameters.param) ? "_Bias" : "");
                         });

// The tensors are large enough that all-reduces are sliced, which the formulas count.
class ParallelLinearTraffic : public ParallelLinearOf {};

TEST_P(ParallelLinearTraffic, BytesAndPartners_AreTheClosedForms) {
  LinearOptions options = this->options();
  options.shape = {.tokens = 288, .in = 144, .out = 144};
  const LinearTraffic expected = TrafficOf(grid(), options.role, options.shape);
  const Dense d = WholeDense(options.shape);
  for (const Outcome& rank : Run<kernels::BFloat16>(d, options)) {
    const auto bytes = [](double elements, double sums) { return 2 * elements + 2 * sums; };
    EXPECT_EQ(static_cast<double>(rank.forward_bytes),
              bytes(expected.forward_elements, expected.forward_sums));
    EXPECT_EQ(static_cast<double>(rank.backward_bytes),
              bytes(expected.backward_elements, expected.backward_sums));
  }
  for (const Outcome& rank : Run(d, options)) {
    EXPECT_EQ(static_cast<double>(rank.forward_bytes), expected.forward_elements * sizeof(float));
    EXPECT_EQ(static_cast<double>(rank.backward_bytes), expected.backward_elements * sizeof(float));
    EXPECT_EQ(rank.partners, expected.partners);
    EXPECT_EQ(static_cast<double>(rank.dx.size()), expected.saved_elements);
    EXPECT_EQ(static_cast<double>(rank.dw.size()), expected.weight_elements);
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, ParallelLinearTraffic,
                         testing::Combine(testing::ValuesIn(TrafficGrids()),
                                          testing::Values(LinearRole::kFirst, LinearRole::kSecond),
                                          testing::Values(false)));

TEST(ParallelLinear, PairOfFirstAndSecond_NeedsNoExchangeInBetween) {
  for (const GridCase& c : {GridCase{TensorMode::k1D, 4}, GridCase{TensorMode::k2D, 4},
                            GridCase{TensorMode::k25D, 8, 2}, GridCase{TensorMode::k3D, 8},
                            GridCase{TensorMode::k1DSequence, 4}}) {
    const TensorGrid grid = c.grid();
    for (int rank = 0; rank < c.ranks; ++rank) {
      const auto first =
          BlocksOf(grid, LinearRole::kFirst, {.tokens = 16, .in = 8, .out = 32}, rank);
      const auto second =
          BlocksOf(grid, LinearRole::kSecond, {.tokens = 16, .in = 32, .out = 8}, rank);
      ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
      EXPECT_EQ(first->y, second->x) << c << " rank " << rank;
      EXPECT_EQ(second->y, first->x) << c << " rank " << rank;
    }
  }
}

TEST(ParallelLinear, OfOneDimension_IsRefused) {
  OnGrid({TensorMode::k1D, 2}, [](TensorGroups& groups, LinearScratch& scratch) {
    EXPECT_EQ(ParallelLinear<float>::Make(groups, {.shape = {2, 2, 2}}, scratch).status().code(),
              absl::StatusCode::kInvalidArgument);
  });
}

TEST(ParallelLinear, SpanOfAnotherSize_IsRefusedBeforeAnythingIsSent) {
  const auto alone = MakeSelfCommunicator();
  const TensorGrid grid = *TensorGrid::Make(TensorMode::k2D, 1);
  auto groups = TensorGroups::Connect(grid, *alone);
  ASSERT_TRUE(groups.ok()) << groups.status();
  LinearScratch scratch;
  auto layer = ParallelLinear<float>::Make(
      **groups, {.shape = {.tokens = 2, .in = 3, .out = 4}, .bias = true}, scratch);
  ASSERT_TRUE(layer.ok()) << layer.status();
  std::vector<float> x(6), w(12), b(4), y(8);
  EXPECT_EQ((*layer)->Forward(x, w, b, y), absl::OkStatus());
  const auto refused = (*layer)->Forward(x, w, {}, y);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.message(), "the bias has 0 elements; this rank's block of it has 4");
  EXPECT_EQ((*layer)->Backward(x, w, x, {.x = x, .w = w, .bias = b}).message(),
            "dY has 6 elements; this rank's block of it has 8");
}

}  // namespace
}  // namespace geminid::collectives
