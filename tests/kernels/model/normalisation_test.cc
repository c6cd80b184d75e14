// LayerNorm and RMSNorm.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/model/normalisation/layer_norm.h"
#include "kernels/model/normalisation/rms_norm.h"
#include "tests/kernels/model/model_kernels.h"

namespace geminid::kernels {
namespace {

// One float64 reference for both: RMSNorm is LayerNorm without the mean.
struct Reference {
  size_t rows;
  size_t cols;
  double epsilon;
  bool subtract_mean;

  double Mean(const Doubles& x, size_t r) const {
    if (!subtract_mean) return 0;
    double sum = 0;
    for (size_t i = 0; i < cols; ++i) sum += x[r * cols + i];
    return sum / static_cast<double>(cols);
  }

  double Rstd(const Doubles& x, size_t r) const {
    const double mean = Mean(x, r);
    double sum = 0;
    for (size_t i = 0; i < cols; ++i) sum += std::pow(x[r * cols + i] - mean, 2);
    return 1.0 / std::sqrt(sum / static_cast<double>(cols) + epsilon);
  }

  Doubles Forward(const Doubles& x, const Doubles& gamma, const Doubles& beta) const {
    Doubles y(x.size());
    for (size_t r = 0; r < rows; ++r) {
      const double mean = Mean(x, r);
      const double rstd = Rstd(x, r);
      for (size_t i = 0; i < cols; ++i) {
        y[r * cols + i] = (x[r * cols + i] - mean) * rstd * gamma[i] + beta[i];
      }
    }
    return y;
  }

  struct Gradients {
    Doubles dx, dgamma, dbeta;
  };

  Gradients Backward(const Doubles& dy, const Doubles& x, const Doubles& gamma) const {
    Gradients out = {Doubles(x.size()), Doubles(cols), Doubles(cols)};
    for (size_t r = 0; r < rows; ++r) {
      const double mean = Mean(x, r);
      const double rstd = Rstd(x, r);
      double sum_g = 0;
      double sum_gx = 0;
      for (size_t i = 0; i < cols; ++i) {
        const double xhat = (x[r * cols + i] - mean) * rstd;
        const double g = dy[r * cols + i] * gamma[i];
        sum_g += g;
        sum_gx += g * xhat;
        out.dgamma[i] += dy[r * cols + i] * xhat;
        out.dbeta[i] += dy[r * cols + i];
      }
      const auto n = static_cast<double>(cols);
      for (size_t i = 0; i < cols; ++i) {
        const double xhat = (x[r * cols + i] - mean) * rstd;
        const double g = dy[r * cols + i] * gamma[i];
        out.dx[r * cols + i] = rstd * (g - (subtract_mean ? sum_g / n : 0.0) - xhat * sum_gx / n);
      }
    }
    return out;
  }
};

// P is the type of gamma and beta.
template <typename T, typename P = T>
struct Inputs {
  Inputs(size_t rows_count, size_t cols_count, unsigned seed)
      : rows(rows_count),
        cols(cols_count),
        random(seed),
        x(RandomTensor<T>(random, rows * cols, 2.0, 0.7)),
        dy(RandomTensor<T>(random, rows * cols)),
        residual(RandomTensor<T>(random, rows * cols)),
        gamma(RandomTensor<P>(random, cols, 0.3, 1.0)),
        beta(RandomTensor<P>(random, cols, 0.3)) {}

  size_t rows;
  size_t cols;
  std::mt19937 random;
  GuardedArray<T> x, dy, residual;
  GuardedArray<P> gamma, beta;
};

// Runs both passes of LayerNorm.
template <typename T, typename P = T>
struct LayerNormRun {
  explicit LayerNormRun(const Inputs<T, P>& in, bool with_residual = false)
      : y(in.rows * in.cols, 0),
        dx(in.rows * in.cols, 0),
        dgamma(in.cols, 0),
        dbeta(in.cols, 0),
        mean(in.rows, 0),
        rstd(in.rows, 0) {
    const LayerNormShape shape = {.rows = in.rows, .cols = in.cols};
    EXPECT_EQ(LayerNormForward(shape, in.x.data(), in.gamma.data(), in.beta.data(), y.data(),
                               mean.data(), rstd.data()),
              Status::kOk);
    LayerNormBackwardArgs<T, P> args = {.dy = in.dy.data(),
                                        .x = in.x.data(),
                                        .gamma = in.gamma.data(),
                                        .mean = mean.data(),
                                        .rstd = rstd.data(),
                                        .dx = dx.data(),
                                        .dgamma = dgamma.data(),
                                        .dbeta = dbeta.data()};
    if (with_residual) args.residual = in.residual.data();
    Workspace workspace(LayerNormWorkspaceBytes(shape));
    EXPECT_EQ(LayerNormBackward(shape, args, workspace.data(), workspace.bytes()), Status::kOk);
    EXPECT_TRUE(workspace.array.GuardsIntact());
  }
  GuardedArray<T> y, dx;
  GuardedArray<P> dgamma, dbeta;
  GuardedArray<float> mean, rstd;
};

template <typename T, typename P = T>
struct RmsNormRun {
  explicit RmsNormRun(const Inputs<T, P>& in, bool with_residual = false)
      : y(in.rows * in.cols, 0), dx(in.rows * in.cols, 0), dgamma(in.cols, 0), rstd(in.rows, 0) {
    const RmsNormShape shape = {.rows = in.rows, .cols = in.cols};
    EXPECT_EQ(RmsNormForward(shape, in.x.data(), in.gamma.data(), y.data(), rstd.data()),
              Status::kOk);
    RmsNormBackwardArgs<T, P> args = {.dy = in.dy.data(),
                                      .x = in.x.data(),
                                      .gamma = in.gamma.data(),
                                      .rstd = rstd.data(),
                                      .dx = dx.data(),
                                      .dgamma = dgamma.data()};
    if (with_residual) args.residual = in.residual.data();
    Workspace workspace(RmsNormWorkspaceBytes(shape));
    EXPECT_EQ(RmsNormBackward(shape, args, workspace.data(), workspace.bytes()), Status::kOk);
    EXPECT_TRUE(workspace.array.GuardsIntact());
  }
  GuardedArray<T> y, dx;
  GuardedArray<P> dgamma;
  GuardedArray<float> rstd;
};

template <typename T>
class Normalisation : public ::testing::Test {};
TYPED_TEST_SUITE(Normalisation, ElementTypes);

constexpr double kEpsilon = 1e-5F;

TYPED_TEST(Normalisation, LayerNorm_OddSizes_MatchesFloat64) {
  for (const size_t cols : {1, 7, 16, 33, 768}) {
    SCOPED_TRACE(cols);
    const Inputs<TypeParam> in(5, cols, 11);
    const Reference reference = {5, cols, kEpsilon, true};
    const auto want = reference.Backward(ToDoubles(in.dy), ToDoubles(in.x), ToDoubles(in.gamma));
    ForEachTarget([&] {
      const LayerNormRun<TypeParam> run(in);
      ExpectClose(
          run.y, reference.Forward(ToDoubles(in.x), ToDoubles(in.gamma), ToDoubles(in.beta)), 2e-6);
      // With one column x - mean is 0 and rstd is 316: fp32 noise is relative to dy rstd.
      ExpectClose(run.dx, want.dx, 3e-6, cols == 1 ? 1e3 : 0);
      ExpectClose(run.dgamma, want.dgamma, 3e-6, cols == 1 ? 1.0 : 0);
      ExpectClose(run.dbeta, want.dbeta, 1e-6);
    });
  }
}

TYPED_TEST(Normalisation, RmsNorm_OddSizes_MatchesFloat64) {
  for (const size_t cols : {1, 7, 16, 33, 768}) {
    SCOPED_TRACE(cols);
    const Inputs<TypeParam> in(5, cols, 12);
    const Reference reference = {5, cols, kEpsilon, false};
    const auto want = reference.Backward(ToDoubles(in.dy), ToDoubles(in.x), ToDoubles(in.gamma));
    ForEachTarget([&] {
      const RmsNormRun<TypeParam> run(in);
      ExpectClose(run.y, reference.Forward(ToDoubles(in.x), ToDoubles(in.gamma), Doubles(cols)),
                  2e-6);
      ExpectClose(run.dx, want.dx, 3e-6, cols == 1 ? 10.0 : 0);
      ExpectClose(run.dgamma, want.dgamma, 3e-6);
    });
  }
}

TEST(Normalisation, Fp32GainsBesideBf16Rows_MatchFloat64AndAreNotRounded) {
  for (const size_t cols : {1, 7, 33, 768}) {
    SCOPED_TRACE(cols);
    const Inputs<BFloat16, float> in(5, cols, 17);
    const Doubles x = ToDoubles(in.x), dy = ToDoubles(in.dy), gamma = ToDoubles(in.gamma);
    for (const bool layer_norm : {false, true}) {
      const Reference reference = {5, cols, kEpsilon, layer_norm};
      const Doubles beta = layer_norm ? ToDoubles(in.beta) : Doubles(cols);
      const auto want = reference.Backward(dy, x, gamma);
      const auto expect = [&](const auto& run) {
        ExpectClose(run.y, reference.Forward(x, gamma, beta), 2e-6);
        ExpectClose(run.dx, want.dx, 3e-6, cols == 1 ? 1e3 : 0);
        // The gradients of the gains are fp32, so the bound allows no rounding to bf16.
        ExpectClose(run.dgamma, want.dgamma, 3e-6, cols == 1 ? 1.0 : 0);
      };
      ForEachTarget([&] {
        if (layer_norm) {
          const LayerNormRun<BFloat16, float> run(in);
          expect(run);
          ExpectClose(run.dbeta, want.dbeta, 1e-6);
        } else {
          expect(RmsNormRun<BFloat16, float>(in));
        }
      });
    }
  }
}

TEST(Normalisation, Reference_FiniteDifferences_Agree) {
  for (const bool subtract_mean : {false, true}) {
    const Inputs<float> in(3, 21, 13);
    const Reference reference = {3, 21, kEpsilon, subtract_mean};
    const Doubles x = ToDoubles(in.x);
    const Doubles gamma = ToDoubles(in.gamma);
    const Doubles beta = ToDoubles(in.beta);
    const Doubles dy = ToDoubles(in.dy);
    const auto dx = NumericGradient(
        [&](const Doubles& at) { return Dot(reference.Forward(at, gamma, beta), dy); }, x);
    const auto dgamma = NumericGradient(
        [&](const Doubles& at) { return Dot(reference.Forward(x, at, beta), dy); }, gamma);
    const auto dbeta = NumericGradient(
        [&](const Doubles& at) { return Dot(reference.Forward(x, gamma, at), dy); }, beta);
    const auto want = reference.Backward(dy, x, gamma);
    for (size_t i = 0; i < dx.size(); ++i) EXPECT_NEAR(dx[i], want.dx[i], 1e-8);
    for (size_t i = 0; i < gamma.size(); ++i) {
      EXPECT_NEAR(dgamma[i], want.dgamma[i], 1e-8);
      EXPECT_NEAR(dbeta[i], want.dbeta[i], 1e-8);
    }
  }
}

TYPED_TEST(Normalisation, Backward_Residual_IsAddedBeforeRounding) {
  const Inputs<TypeParam> in(4, 50, 14);
  const Doubles residual = ToDoubles(in.residual);
  for (const bool layer_norm : {false, true}) {
    const Reference reference = {4, 50, kEpsilon, layer_norm};
    Doubles want = reference.Backward(ToDoubles(in.dy), ToDoubles(in.x), ToDoubles(in.gamma)).dx;
    for (size_t i = 0; i < want.size(); ++i) want[i] += residual[i];
    if (layer_norm) {
      ExpectClose(LayerNormRun<TypeParam>(in, true).dx, want, 3e-6);
    } else {
      ExpectClose(RmsNormRun<TypeParam>(in, true).dx, want, 3e-6);
    }
  }
}

TYPED_TEST(Normalisation, LayerNormBackward_InPlaceAccumulatingOrFrozen_SameValues) {
  const Inputs<TypeParam> in(6, 40, 15);
  const LayerNormRun<TypeParam> run(in);
  const LayerNormShape shape = {.rows = 6, .cols = 40};
  auto dx = FromDoubles<TypeParam>(ToDoubles(in.dy));
  GuardedArray<TypeParam> dgamma = FromDoubles<TypeParam>(Doubles(40, 3.0));
  GuardedArray<TypeParam> dbeta = FromDoubles<TypeParam>(Doubles(40, -2.0));
  LayerNormBackwardArgs<TypeParam> args = {.dy = dx.data(),
                                           .x = in.x.data(),
                                           .gamma = in.gamma.data(),
                                           .mean = run.mean.data(),
                                           .rstd = run.rstd.data(),
                                           .dx = dx.data(),
                                           .dgamma = dgamma.data(),
                                           .dbeta = dbeta.data(),
                                           .accumulate = true};
  Workspace workspace(LayerNormWorkspaceBytes(shape));
  ASSERT_EQ(LayerNormBackward(shape, args, workspace.data(), workspace.bytes()), Status::kOk);
  EXPECT_TRUE(SameBits(dx.data(), run.dx.data(), dx.size()));
  const Reference reference = {6, 40, kEpsilon, true};
  auto want = reference.Backward(ToDoubles(in.dy), ToDoubles(in.x), ToDoubles(in.gamma));
  for (double& value : want.dgamma) value += 3.0;
  for (double& value : want.dbeta) value -= 2.0;
  ExpectClose(dgamma, want.dgamma, 3e-6);
  ExpectClose(dbeta, want.dbeta, 3e-6);

  args.dy = in.dy.data();
  args.dgamma = nullptr;
  EXPECT_EQ(LayerNormBackward(shape, args, workspace.data(), workspace.bytes()),
            Status::kNullPointer);
  args.dbeta = nullptr;
  ASSERT_EQ(LayerNormBackward(shape, args, workspace.data(), workspace.bytes()), Status::kOk);
  EXPECT_TRUE(SameBits(dx.data(), run.dx.data(), dx.size()));
}

TYPED_TEST(Normalisation, BothPasses_EveryFmaTarget_SameBits) {
  const Inputs<TypeParam> in(5, 133, 16);
  ExpectSameBitsOnFmaTargets([&] { return LayerNormRun<TypeParam>(in).dx; });
  ExpectSameBitsOnFmaTargets([&] { return LayerNormRun<TypeParam>(in).dgamma; });
  ExpectSameBitsOnFmaTargets([&] { return RmsNormRun<TypeParam>(in).dx; });
  ExpectSameBitsOnFmaTargets([&] { return RmsNormRun<TypeParam>(in).dgamma; });
}

TEST(Normalisation, BadArguments_AreRefused) {
  GuardedArray<float> x(32, 0);
  GuardedArray<float> gamma(8, 0);
  GuardedArray<float> y(32, 0);
  const auto forward = [&](RmsNormShape shape, float* out) {
    return RmsNormForward(shape, x.data(), gamma.data(), out, static_cast<float*>(nullptr));
  };
  EXPECT_EQ(forward({.rows = 4, .cols = 0}, y.data()), Status::kInvalidShape);
  EXPECT_EQ(forward({.rows = 4, .cols = 8, .epsilon = -1.0F}, y.data()), Status::kInvalidParameter);
  EXPECT_EQ(forward({.rows = SIZE_MAX, .cols = 8}, y.data()), Status::kSizeOverflow);
  EXPECT_EQ(forward({.rows = 4, .cols = 8}, nullptr), Status::kNullPointer);
  EXPECT_EQ(forward({.rows = 4, .cols = 8}, x.data() + 1), Status::kOverlap);
  const LayerNormShape shape = {.rows = 1, .cols = 8};
  const LayerNormBackwardArgs<float> args = {.dy = x.data(),
                                             .x = x.data() + 8,
                                             .gamma = gamma.data(),
                                             .mean = x.data() + 16,
                                             .rstd = x.data() + 17,
                                             .dx = y.data()};
  Workspace workspace(LayerNormWorkspaceBytes(shape));
  EXPECT_EQ(LayerNormBackward(shape, args, workspace.data(), workspace.bytes() - 1),
            Status::kInvalidParameter);
  EXPECT_EQ(LayerNormBackward(shape, args, nullptr, workspace.bytes()), Status::kNullPointer);
}

// The sum of a row by the order that kernels/model/normalisation/row_order.h gives.
float SumInOrder(const std::vector<float>& row) {
  std::vector<float> lanes(row.size() <= 1024 ? 256 : 2048);
  for (size_t i = 0; i < row.size(); ++i) lanes[i % lanes.size()] += row[i];
  for (size_t half = lanes.size() / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// Widths of one lane, of some of the lanes, of both kinds of rows, and of several columns a lane.
class RowOrder : public testing::TestWithParam<size_t> {
 protected:
  // Values of 11 bits, so that squares are exact and a fused multiply-add rounds like two
  // operations.
  std::vector<float> Row() const {
    std::mt19937 random(57);
    std::vector<float> row(GetParam());
    for (float& value : row) {
      const int bits = static_cast<int>(random() % 2048) - 1024;
      value = std::ldexp(static_cast<float>(bits), static_cast<int>(random() % 12));
    }
    return row;
  }
};

TEST_P(RowOrder, MeanOfLayerNorm_IsOfTheSumInOrder) {
  const std::vector<float> row = Row();
  const std::vector<float> ones(row.size(), 1.0F);
  std::vector<float> y(row.size());
  float mean = 0, rstd = 0;
  ASSERT_EQ(LayerNormForward<float>({.rows = 1, .cols = row.size()}, row.data(), ones.data(),
                                    ones.data(), y.data(), &mean, &rstd),
            Status::kOk);
  EXPECT_EQ(mean, SumInOrder(row) / static_cast<float>(row.size()));
}

TEST_P(RowOrder, RstdOfRmsNorm_IsOfTheSquaresInOrder) {
  const std::vector<float> row = Row();
  std::vector<float> squares = row;
  for (float& value : squares) value *= value;
  const std::vector<float> ones(row.size(), 1.0F);
  std::vector<float> y(row.size());
  float rstd = 0;
  const RmsNormShape shape = {.rows = 1, .cols = row.size()};
  ASSERT_EQ(RmsNormForward<float>(shape, row.data(), ones.data(), y.data(), &rstd), Status::kOk);
  const float mean = SumInOrder(squares) / static_cast<float>(row.size());
  EXPECT_EQ(rstd, 1.0F / std::sqrt(mean + shape.epsilon));
}

INSTANTIATE_TEST_SUITE_P(Widths, RowOrder,
                         testing::Values(1, 16, 17, 255, 256, 300, 1000, 1024, 1025, 2048, 2049,
                                         5000));

}  // namespace
}  // namespace geminid::kernels
