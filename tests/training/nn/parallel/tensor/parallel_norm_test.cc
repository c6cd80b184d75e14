#include "training/nn/parallel/tensor/parallel_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "kernels/model/normalisation/layer_norm.h"
#include "kernels/model/normalisation/rms_norm.h"
#include "tests/training/nn/parallel/tensor/grids.h"
#include "tests/training/nn/parallel/tensor/layer_traffic.h"

namespace geminid::collectives {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The whole inputs. gamma and beta have one row.
struct Given {
  NormOptions options;
  Matrix x, gamma, beta, dy;
};

struct Results {
  std::vector<float> y{}, dx{}, dgamma{}, dbeta{};  // no dbeta in RMS normalisation
  friend bool operator==(const Results&, const Results&) = default;
};

Results CutFrom(const Results& whole, const NormOptions& options, const NormBlocks& blocks) {
  const auto cut = [&](const std::vector<float>& elements) {
    Matrix matrix(options.tokens, options.hidden);
    matrix.elements = elements;
    return Cut(matrix, blocks.x);
  };
  Results results = {.y = cut(whole.y), .dx = cut(whole.dx)};
  results.dgamma = Cut(whole.dgamma, blocks.parameter);
  if (!whole.dbeta.empty()) results.dbeta = Cut(whole.dbeta, blocks.parameter);
  return results;
}

struct Outcome {
  NormBlocks blocks;
  Results results;
  uint64_t forward_bytes = 0, backward_bytes = 0;
  int partners = 0;
};

void RunRank(const Given& given, TensorGroups& groups, LinearScratch& scratch, Outcome& outcome) {
  auto layer = ParallelNorm::Make(groups, given.options, scratch);
  ASSERT_TRUE(layer.ok()) << layer.status();
  const NormBlocks& blocks = outcome.blocks = (*layer)->blocks();
  const bool is_rms = given.options.kind == NormKind::kRms;
  const size_t kept = blocks.parameter.count;
  const std::vector<float> x = Cut(given.x, blocks.x), dy = Cut(given.dy, blocks.x);
  const std::vector<float> gamma = Cut(given.gamma.elements, blocks.parameter);
  const std::vector<float> beta =
      is_rms ? std::vector<float>() : Cut(given.beta.elements, blocks.parameter);
  std::vector<float> statistics((*layer)->statistics(), kNaN);
  Results& results = outcome.results;
  results.y.assign(x.size(), kNaN);
  results.dx.assign(x.size(), kNaN);
  results.dgamma.assign(kept, kNaN);
  results.dbeta.assign(is_rms ? 0 : kept, kNaN);
  ASSERT_EQ((*layer)->Forward(x, gamma, beta, statistics, results.y), absl::OkStatus());
  outcome.forward_bytes = groups.received().bytes;
  ASSERT_EQ((*layer)->Backward(x, gamma, statistics, dy,
                               {.x = results.dx, .gamma = results.dgamma, .beta = results.dbeta}),
            absl::OkStatus());
  outcome.backward_bytes = groups.received().bytes - outcome.forward_bytes;
  outcome.partners = groups.received().partners;
}

std::vector<Outcome> RunAll(const GridCase& grid, const Given& given) {
  std::vector<Outcome> outcomes(static_cast<size_t>(grid.ranks));
  OnGrid(grid, [&](TensorGroups& groups, LinearScratch& scratch) {
    RunRank(given, groups, scratch, outcomes[static_cast<size_t>(groups.rank())]);
  });
  return outcomes;
}

// The results of the kernels in one process.
Results Dense(const Given& given) {
  const auto [kind, rows, cols, epsilon] = given.options;
  Results out = {.y = given.x.elements, .dx = given.x.elements, .dgamma = given.gamma.elements};
  std::vector<float> mean(rows), rstd(rows);
  alignas(64) std::byte workspace[4096];
  const float* const x = given.x.elements.data();
  const float* const gamma = given.gamma.elements.data();
  const float* const dy = given.dy.elements.data();
  if (kind == NormKind::kRms) {
    EXPECT_EQ(kernels::RmsNormForward({rows, cols, epsilon}, x, gamma, out.y.data(), rstd.data()),
              kernels::Status::kOk);
    const kernels::RmsNormBackwardArgs<float> args = {.dy = dy,
                                                      .x = x,
                                                      .gamma = gamma,
                                                      .rstd = rstd.data(),
                                                      .dx = out.dx.data(),
                                                      .dgamma = out.dgamma.data()};
    EXPECT_EQ(kernels::RmsNormBackward({rows, cols, epsilon}, args, workspace, sizeof(workspace)),
              kernels::Status::kOk);
    return out;
  }
  out.dbeta.resize(cols);
  EXPECT_EQ(kernels::LayerNormForward({rows, cols, epsilon}, x, gamma, given.beta.elements.data(),
                                      out.y.data(), mean.data(), rstd.data()),
            kernels::Status::kOk);
  const kernels::LayerNormBackwardArgs<float> args = {.dy = dy,
                                                      .x = x,
                                                      .gamma = gamma,
                                                      .mean = mean.data(),
                                                      .rstd = rstd.data(),
                                                      .dx = out.dx.data(),
                                                      .dgamma = out.dgamma.data(),
                                                      .dbeta = out.dbeta.data()};
  EXPECT_EQ(kernels::LayerNormBackward({rows, cols, epsilon}, args, workspace, sizeof(workspace)),
            kernels::Status::kOk);
  return out;
}

class ParallelNormOf : public testing::TestWithParam<std::tuple<GridCase, NormKind>> {
 protected:
  const GridCase& grid() const { return std::get<0>(GetParam()); }
  NormKind kind() const { return std::get<1>(GetParam()); }
  bool is_rms() const { return kind() == NormKind::kRms; }

  Given RandomNumbers(size_t tokens, size_t hidden) const {
    std::mt19937 random(11);
    std::normal_distribution<float> normal(1, 2);
    const auto draw = [&] { return normal(random); };
    return {.options = {.kind = kind(), .tokens = tokens, .hidden = hidden},
            .x = Drawn(tokens, hidden, draw),
            .gamma = Drawn(1, hidden, draw),
            .beta = Drawn(1, hidden, draw),
            .dy = Drawn(tokens, hidden, draw)};
  }
};

// Half of a row's elements are a distance above its middle and half are below. So the variance is a
// power of four, xhat is 1 or -1, and every sum is exact.
TEST_P(ParallelNormOf, WholeNumbers_AreTheDenseLayersBitForBit) {
  constexpr size_t kTokens = 36, kHidden = 72;
  std::mt19937 random(7);
  Given given = {.options = {.kind = kind(), .tokens = kTokens, .hidden = kHidden, .epsilon = 0},
                 .x = Matrix(kTokens, kHidden),
                 .gamma = Drawn(1, kHidden, WholeNumbers(random, 8)),
                 .beta = Drawn(1, kHidden, WholeNumbers(random, 8)),
                 .dy = Drawn(kTokens, kHidden, WholeNumbers(random, 8))};
  for (size_t t = 0; t < kTokens; ++t) {
    const auto middle = is_rms() ? 0.0F : static_cast<float>(random() % 9) - 4.0F;
    const auto distance = static_cast<float>(1 << random() % 4);
    float* const row = &given.x.at(t, 0);
    for (size_t c = 0; c < kHidden; ++c) row[c] = middle + (c % 2 == 0 ? distance : -distance);
    std::shuffle(row, row + kHidden, random);
  }
  const Results dense = Dense(given);
  for (const Outcome& rank : RunAll(grid(), given)) {
    EXPECT_EQ(rank.results, CutFrom(dense, given.options, rank.blocks));
  }
}

// One row in float64, and the sums of absolute values that bound the rounding errors.
struct Row {
  double mean = 0, rstd = 0, mean_g = 0, mean_gx = 0;
  double size = 0, size_g = 0, size_gx = 0;  // means of |x|, |g|, |g xhat|

  Row(const Given& given, size_t t) {
    const size_t cols = given.options.hidden;
    const bool is_rms = given.options.kind == NormKind::kRms;
    for (size_t c = 0; c < cols; ++c) {
      mean += is_rms ? 0 : double{given.x.at(t, c)} / static_cast<double>(cols);
      size += std::abs(double{given.x.at(t, c)}) / static_cast<double>(cols);
    }
    double squares = 0;
    for (size_t c = 0; c < cols; ++c) squares += std::pow(double{given.x.at(t, c)} - mean, 2);
    rstd = 1 / std::sqrt(squares / static_cast<double>(cols) + double{given.options.epsilon});
    for (size_t c = 0; c < cols; ++c) {
      const double g = G(given, t, c), gx = g * Xhat(given, t, c);
      mean_g += is_rms ? 0 : g / static_cast<double>(cols);
      mean_gx += gx / static_cast<double>(cols);
      size_g += std::abs(g) / static_cast<double>(cols);
      size_gx += std::abs(gx) / static_cast<double>(cols);
    }
  }

  double Xhat(const Given& given, size_t t, size_t c) const {
    return (double{given.x.at(t, c)} - mean) * rstd;
  }
  // The error of xhat, in units of the rounding of a sum over the row.
  double XhatError(const Given& given, size_t t, size_t c) const {
    return rstd * (std::abs(double{given.x.at(t, c)}) + size) + std::abs(Xhat(given, t, c));
  }
  static double G(const Given& given, size_t t, size_t c) {
    return double{given.dy.at(t, c)} * double{given.gamma.at(0, c)};
  }
};

struct Expected {
  Results want, error;
};

Expected Solve(const Given& given) {
  const size_t rows = given.options.tokens, cols = given.options.hidden;
  const bool is_rms = given.options.kind == NormKind::kRms;
  const auto unit = 0x1p-24 * static_cast<double>(cols + 8);
  Expected out;
  std::vector<double> dgamma(cols), dgamma_error(cols), dbeta(cols), dbeta_error(cols);
  for (size_t t = 0; t < rows; ++t) {
    const Row row(given, t);
    for (size_t c = 0; c < cols; ++c) {
      const double xhat = row.Xhat(given, t, c), error = row.XhatError(given, t, c);
      const double gamma = given.gamma.at(0, c), dy = given.dy.at(t, c), g = Row::G(given, t, c);
      const double beta = is_rms ? 0 : given.beta.at(0, c);
      out.want.y.push_back(static_cast<float>(xhat * gamma + beta));
      out.error.y.push_back(static_cast<float>(unit * (error * std::abs(gamma) + std::abs(beta))));
      out.want.dx.push_back(static_cast<float>(row.rstd * (g - row.mean_g - xhat * row.mean_gx)));
      out.error.dx.push_back(static_cast<float>(
          2 * unit * row.rstd *
          (std::abs(g) + row.size_g + (error + std::abs(xhat)) * (row.size_gx + row.size_g))));
      dgamma[c] += dy * xhat;
      dgamma_error[c] += std::abs(dy) * (error + std::abs(xhat));
      dbeta[c] += dy;
      dbeta_error[c] += std::abs(dy);
    }
  }
  for (size_t c = 0; c < cols; ++c) {
    const double terms = 0x1p-24 * static_cast<double>(rows);
    out.want.dgamma.push_back(static_cast<float>(dgamma[c]));
    out.error.dgamma.push_back(static_cast<float>((unit + terms) * dgamma_error[c]));
    if (is_rms) continue;
    out.want.dbeta.push_back(static_cast<float>(dbeta[c]));
    out.error.dbeta.push_back(static_cast<float>(terms * dbeta_error[c]));
  }
  return out;
}

void ExpectWithin(const std::vector<float>& got, const std::vector<float>& want,
                  const std::vector<float>& error) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], error[i]) << i;
}

TEST_P(ParallelNormOf, RandomNumbers_AreTheDenseLayersToRounding) {
  const Given given = RandomNumbers(36, 72);
  const Expected expected = Solve(given);
  for (const Outcome& rank : RunAll(grid(), given)) {
    const Results want = CutFrom(expected.want, given.options, rank.blocks);
    const Results error = CutFrom(expected.error, given.options, rank.blocks);
    ExpectWithin(rank.results.y, want.y, error.y);
    ExpectWithin(rank.results.dx, want.dx, error.dx);
    ExpectWithin(rank.results.dgamma, want.dgamma, error.dgamma);
    ExpectWithin(rank.results.dbeta, want.dbeta, error.dbeta);
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, ParallelNormOf,
                         testing::Combine(testing::ValuesIn(AllGrids()),
                                          testing::Values(NormKind::kLayer, NormKind::kRms)),
                         [](const auto& parameters) {
                           const bool is_rms = std::get<1>(parameters.param) == NormKind::kRms;
                           return std::get<0>(parameters.param).name() +
                                  (is_rms ? "_Rms" : "_Layer");
                         });

// Rows that are not sharded are summed in the kernels' own order.
class ParallelNormOfWholeRows : public ParallelNormOf {};

TEST_P(ParallelNormOfWholeRows, RandomNumbers_HaveTheBitsOfOneProcess) {
  const Given given = RandomNumbers(36, 70);
  const Results dense = Dense(given);
  for (const Outcome& rank : RunAll(grid(), given)) {
    EXPECT_EQ(rank.results, CutFrom(dense, given.options, rank.blocks));
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, ParallelNormOfWholeRows,
                         testing::Combine(testing::Values(GridCase{TensorMode::k1D, 3},
                                                          GridCase{TensorMode::k2D, 1},
                                                          GridCase{TensorMode::k3D, 1}),
                                          testing::Values(NormKind::kLayer, NormKind::kRms)));

class ParallelNormTraffic : public ParallelNormOf {};

// Sums of few rows are exchanged directly, those of many in slices: both are counted.
TEST_P(ParallelNormTraffic, BytesAndPartners_AreTheClosedForms) {
  for (const auto& [tokens, hidden] : {std::pair<size_t, size_t>(36, 72), {73728, 36}}) {
    const Given given = RandomNumbers(tokens, hidden);
    const LayerTraffic expected = TrafficOf(grid().grid(), given.options);
    for (const Outcome& rank : RunAll(grid(), given)) {
      EXPECT_EQ(static_cast<double>(rank.forward_bytes), expected.forward_elements * sizeof(float));
      EXPECT_EQ(static_cast<double>(rank.backward_bytes),
                expected.backward_elements * sizeof(float));
      EXPECT_EQ(rank.partners, expected.partners);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, ParallelNormTraffic,
                         testing::Combine(testing::ValuesIn(TrafficGrids()),
                                          testing::Values(NormKind::kLayer, NormKind::kRms)));

TEST(ParallelNorm, ArgumentsThatDoNotFit_AreRefused) {
  OnGrid({TensorMode::k2D, 1}, [](TensorGroups& groups, LinearScratch& scratch) {
    EXPECT_EQ(ParallelNorm::Make(groups, {.tokens = 1, .hidden = 2, .epsilon = -1}, scratch)
                  .status()
                  .message(),
              "a norm's epsilon of -1: it is finite and not negative");
    auto layer =
        ParallelNorm::Make(groups, {.kind = NormKind::kRms, .tokens = 2, .hidden = 2}, scratch);
    ASSERT_TRUE(layer.ok()) << layer.status();
    std::vector<float> x(4), gamma(2), statistics(2);
    EXPECT_EQ((*layer)->Forward(x, gamma, gamma, statistics, x).message(),
              "beta has 2 elements; this rank's block of it has 0");
    EXPECT_EQ((*layer)->Forward(x, gamma, {}, statistics, x), absl::OkStatus());
  });
}

}  // namespace
}  // namespace geminid::collectives
