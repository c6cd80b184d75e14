// GELU in both forms, ReLU, SwiGLU, residual and bias.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/model/activation/gelu.h"
#include "kernels/model/activation/gelu_erf.h"
#include "kernels/model/activation/relu.h"
#include "kernels/model/activation/swiglu.h"
#include "kernels/model/elementwise/bias.h"
#include "tests/kernels/model/model_kernels.h"

namespace geminid::kernels {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

double Gelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / kPi) * (x + 0.044715 * x * x * x)));
}

double GeluDerivative(double x) {
  const double u = std::sqrt(2.0 / kPi) * (x + 0.044715 * x * x * x);
  const double du = std::sqrt(2.0 / kPi) * (1.0 + 3.0 * 0.044715 * x * x);
  const double t = std::tanh(u);
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * du;
}

double GeluErf(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }

double GeluErfDerivative(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * std::exp(-x * x / 2) / std::sqrt(2 * kPi);
}

double Silu(double x) { return x / (1.0 + std::exp(-x)); }

template <typename T>
class Activations : public ::testing::Test {};
TYPED_TEST_SUITE(Activations, ElementTypes);

TYPED_TEST(Activations, GeluForward_AnySize_MatchesFloat64) {
  std::mt19937 random(1);
  for (const size_t count : {1, 15, 16, 17, 1000}) {
    SCOPED_TRACE(count);
    const auto x = RandomTensor<TypeParam>(random, count, 3.0, 0.0, 1);
    Doubles want(count);
    for (size_t i = 0; i < count; ++i) want[i] = Gelu(ToDouble(x.data()[i]));
    ForEachTarget([&] {
      GuardedArray<TypeParam> y(count, 3);
      ASSERT_EQ(GeluForward(x.data(), count, y.data()), Status::kOk);
      ExpectClose(y, want, 3e-7);
    });
  }
}

TYPED_TEST(Activations, GeluBackward_AnySize_MatchesFloat64AndDifferences) {
  std::mt19937 random(2);
  const size_t count = 333;
  const auto x = RandomTensor<TypeParam>(random, count, 2.0);
  const auto dy = RandomTensor<TypeParam>(random, count);
  const Doubles weights = ToDoubles(dy);
  Doubles want(count);
  for (size_t i = 0; i < count; ++i) want[i] = weights[i] * GeluDerivative(ToDouble(x.data()[i]));
  const Doubles numeric = NumericGradient(
      [&](const Doubles& at) {
        double sum = 0;
        for (size_t i = 0; i < count; ++i) sum += weights[i] * Gelu(at[i]);
        return sum;
      },
      ToDoubles(x));
  GuardedArray<TypeParam> dx(count, 0);
  ASSERT_EQ(GeluBackward(dy.data(), x.data(), count, dx.data()), Status::kOk);
  ExpectClose(dx, want, 5e-7);
  ExpectClose(dx, numeric, 2e-6);
}

TYPED_TEST(Activations, GeluErf_AnySize_MatchesFloat64AndDifferences) {
  std::mt19937 random(9);
  for (const size_t count : {1, 15, 16, 17, 1000}) {
    SCOPED_TRACE(count);
    const auto x = RandomTensor<TypeParam>(random, count, 3.0, 0.0, 1);
    const auto dy = RandomTensor<TypeParam>(random, count, 1.0, 0.0, 1);
    Doubles want(count), slope(count);
    for (size_t i = 0; i < count; ++i) {
      want[i] = GeluErf(ToDouble(x.data()[i]));
      slope[i] = ToDouble(dy.data()[i]) * GeluErfDerivative(ToDouble(x.data()[i]));
    }
    const Doubles numeric = NumericGradient(
        [&](const Doubles& at) {
          double sum = 0;
          for (size_t i = 0; i < count; ++i) sum += ToDouble(dy.data()[i]) * GeluErf(at[i]);
          return sum;
        },
        count > 17 ? Doubles() : ToDoubles(x));
    ForEachTarget([&] {
      GuardedArray<TypeParam> y(count, 3), dx(count, 3);
      ASSERT_EQ(GeluErfForward(x.data(), count, y.data()), Status::kOk);
      ASSERT_EQ(GeluErfBackward(dy.data(), x.data(), count, dx.data()), Status::kOk);
      ExpectClose(y, want, 3e-7);
      ExpectClose(dx, slope, 5e-7);
      if (!numeric.empty()) ExpectClose(dx, numeric, 2e-6);
    });
  }
}

// At -6 the tanh form is 0, but the exact form keeps its digits.
TEST(Activations, GeluErfForward_FarToTheLeft_KeepsItsDigits) {
  const Doubles in = {-1.0, -3.0, -5.0, -6.0, -9.0, -12.0};
  const auto x = FromDoubles<float>(in);
  ForEachTarget([&] {
    GuardedArray<float> y(in.size(), 0);
    ASSERT_EQ(GeluErfForward(x.data(), in.size(), y.data()), Status::kOk);
    for (size_t i = 0; i < in.size(); ++i) {
      EXPECT_NEAR(ToDouble(y[i]), GeluErf(in[i]), 1e-5 * std::abs(GeluErf(in[i]))) << in[i];
    }
  });
}

TYPED_TEST(Activations, GeluErf_ExtremeInputs_StayExact) {
  const Doubles in = {1e4, -1e4, 1e30, -1e30, 0.0, 60.0, -60.0, 16.5, -16.5};
  const auto x = FromDoubles<TypeParam>(in);
  const auto dy = FromDoubles<TypeParam>(Doubles(in.size(), 1.0));
  GuardedArray<TypeParam> y(in.size(), 0), dx(in.size(), 0);
  ASSERT_EQ(GeluErfForward(x.data(), in.size(), y.data()), Status::kOk);
  ASSERT_EQ(GeluErfBackward(dy.data(), x.data(), in.size(), dx.data()), Status::kOk);
  for (size_t i = 0; i < in.size(); ++i) {
    EXPECT_EQ(ToDouble(y[i]), std::max(ToDouble(x.data()[i]), 0.0)) << in[i];
    EXPECT_NEAR(ToDouble(dx[i]),
                in[i] > 0   ? 1.0
                : in[i] < 0 ? 0.0
                            : 0.5,
                in[i] == 0 ? 1e-7 : 0)
        << in[i];
  }
  const auto nan = FromDoubles<TypeParam>({std::nan("")});
  ASSERT_EQ(GeluErfForward(nan.data(), 1, y.data()), Status::kOk);
  EXPECT_TRUE(std::isnan(ToDouble(y[0])));
}

TYPED_TEST(Activations, GeluErf_SplitAndInPlace_SameBitsOnEveryFmaTarget) {
  std::mt19937 random(10);
  const size_t count = 100;
  const auto x = RandomTensor<TypeParam>(random, count, 4.0);
  const auto dy = RandomTensor<TypeParam>(random, count);
  GuardedArray<TypeParam> whole(count, 0);
  ASSERT_EQ(GeluErfForward(x.data(), count, whole.data()), Status::kOk);
  auto parts = FromDoubles<TypeParam>(ToDoubles(x), 5);
  for (size_t i = 0; i < count; i += 7) {
    const size_t n = std::min<size_t>(7, count - i);
    ASSERT_EQ(GeluErfForward(parts.data() + i, n, parts.data() + i), Status::kOk);
  }
  EXPECT_TRUE(SameBits(whole.data(), parts.data(), count));
  ExpectSameBitsOnFmaTargets([&] {
    GuardedArray<TypeParam> dx(count, 0);
    EXPECT_EQ(GeluErfBackward(dy.data(), x.data(), count, dx.data()), Status::kOk);
    return dx;
  });
  EXPECT_EQ(GeluErfForward(parts.data(), 16, parts.data() + 1), Status::kOverlap);
  EXPECT_EQ(GeluErfForward<TypeParam>(nullptr, 16, parts.data()), Status::kNullPointer);
}

TYPED_TEST(Activations, Relu_OfEverySign_PassesWhatIsAboveZero) {
  std::mt19937 random(3);
  for (const size_t count : {1, 16, 17, 1000}) {
    auto x = RandomTensor<TypeParam>(random, count, 2.0, 0.0, 1);
    x.data()[0] = TypeParam{};  // zero has a derivative of zero
    auto dy = RandomTensor<TypeParam>(random, count, 1.0, 0.0, 1);
    GuardedArray<TypeParam> y(count, 1), dx(count, 1);
    ASSERT_EQ(ReluForward(x.data(), count, y.data()), Status::kOk);
    ASSERT_EQ(ReluBackward(dy.data(), x.data(), count, dx.data()), Status::kOk);
    for (size_t i = 0; i < count; ++i) {
      const bool passes = ToDouble(x.data()[i]) > 0;
      EXPECT_EQ(ToDouble(y.data()[i]), passes ? ToDouble(x.data()[i]) : 0);
      EXPECT_EQ(ToDouble(dx.data()[i]), passes ? ToDouble(dy.data()[i]) : 0);
    }
    ASSERT_EQ(ReluForward(x.data(), count, x.data()), Status::kOk);
    EXPECT_TRUE(SameBits(x.data(), y.data(), count));
    EXPECT_TRUE(y.GuardsIntact() && dx.GuardsIntact());
  }
  GuardedArray<TypeParam> x(16, 0);
  EXPECT_EQ(ReluForward(x.data(), 15, x.data() + 1), Status::kOverlap);
  EXPECT_EQ(ReluForward<TypeParam>(nullptr, 16, x.data()), Status::kNullPointer);
}

TYPED_TEST(Activations, Gelu_ExtremeInputs_StayExact) {
  const Doubles in = {1e4, -1e4, 1e30, -1e30, 0.0, 60.0, -60.0};
  const auto x = FromDoubles<TypeParam>(in);
  const auto dy = FromDoubles<TypeParam>(Doubles(in.size(), 1.0));
  GuardedArray<TypeParam> y(in.size(), 0);
  GuardedArray<TypeParam> dx(in.size(), 0);
  ASSERT_EQ(GeluForward(x.data(), in.size(), y.data()), Status::kOk);
  ASSERT_EQ(GeluBackward(dy.data(), x.data(), in.size(), dx.data()), Status::kOk);
  for (const size_t i : {0, 5}) {
    EXPECT_EQ(ToDouble(y[i]), ToDouble(x.data()[i]));
    EXPECT_EQ(ToDouble(dx[i]), 1.0);
  }
  for (const size_t i : {1, 4, 6}) EXPECT_EQ(ToDouble(y[i]), 0.0);
  EXPECT_EQ(ToDouble(y[2]), ToDouble(x.data()[2]));
  EXPECT_EQ(ToDouble(y[3]), 0.0);
}

TYPED_TEST(Activations, Gelu_NaN_StaysNaN) {
  const auto x = FromDoubles<TypeParam>({std::nan("")});
  GuardedArray<TypeParam> y(1, 0);
  ASSERT_EQ(GeluForward(x.data(), 1, y.data()), Status::kOk);
  EXPECT_TRUE(std::isnan(ToDouble(y[0])));
}

TYPED_TEST(Activations, Gelu_SplitAndInPlace_SameBits) {
  std::mt19937 random(3);
  const size_t count = 100;
  const auto x = RandomTensor<TypeParam>(random, count, 2.0);
  GuardedArray<TypeParam> whole(count, 0);
  ASSERT_EQ(GeluForward(x.data(), count, whole.data()), Status::kOk);
  auto parts = FromDoubles<TypeParam>(ToDoubles(x), 5);
  for (size_t i = 0; i < count; i += 7) {
    const size_t n = std::min<size_t>(7, count - i);
    ASSERT_EQ(GeluForward(parts.data() + i, n, parts.data() + i), Status::kOk);
  }
  EXPECT_TRUE(SameBits(whole.data(), parts.data(), count));
}

TYPED_TEST(Activations, Gelu_EveryFmaTarget_SameBits) {
  std::mt19937 random(4);
  const auto x = RandomTensor<TypeParam>(random, 777, 4.0);
  const auto dy = RandomTensor<TypeParam>(random, 777);
  ExpectSameBitsOnFmaTargets([&] {
    GuardedArray<TypeParam> dx(777, 0);
    EXPECT_EQ(GeluBackward(dy.data(), x.data(), 777, dx.data()), Status::kOk);
    return dx;
  });
}

TYPED_TEST(Activations, Gelu_PartialOverlap_IsRefusedUntouched) {
  auto x = FromDoubles<TypeParam>(Doubles(32, 1.0));
  EXPECT_EQ(GeluForward(x.data(), 16, x.data() + 1), Status::kOverlap);
  EXPECT_EQ(GeluForward<TypeParam>(nullptr, 16, x.data()), Status::kNullPointer);
  for (const double value : ToDoubles(x)) EXPECT_EQ(value, 1.0);
}

TYPED_TEST(Activations, Swiglu_FusedRows_MatchesFloat64AndDifferences) {
  std::mt19937 random(5);
  const SwigluShape shape = {.rows = 3, .cols = 37, .gate_up_stride = 74};
  const size_t count = shape.rows * shape.cols;
  const auto fused = RandomTensor<TypeParam>(random, shape.rows * 74, 2.0);
  const auto dy = RandomTensor<TypeParam>(random, count);
  const Doubles weights = ToDoubles(dy);
  const auto forward = [&](const Doubles& in) {
    Doubles y(count);
    for (size_t i = 0; i < count; ++i) {
      const size_t at = i / shape.cols * 74 + i % shape.cols;
      y[i] = Silu(in[at]) * in[at + shape.cols];
    }
    return y;
  };
  GuardedArray<TypeParam> y(count, 0);
  const TypeParam* up = fused.data() + shape.cols;
  ASSERT_EQ(SwigluForward(shape, fused.data(), up, y.data()), Status::kOk);
  ExpectClose(y, forward(ToDoubles(fused)), 5e-7);

  GuardedArray<TypeParam> dfused(fused.size(), 0);
  ASSERT_EQ(
      SwigluBackward(shape, dy.data(), fused.data(), up, dfused.data(), dfused.data() + shape.cols),
      Status::kOk);
  const auto loss = [&](const Doubles& in) { return Dot(forward(in), weights); };
  ExpectClose(dfused, NumericGradient(loss, ToDoubles(fused)), 1e-6);
}

TYPED_TEST(Activations, SwigluBackward_InPlace_SameBits) {
  std::mt19937 random(6);
  const SwigluShape shape = {.rows = 5, .cols = 33, .gate_up_stride = 33};
  auto gate = RandomTensor<TypeParam>(random, 165);
  auto up = RandomTensor<TypeParam>(random, 165);
  const auto dy = RandomTensor<TypeParam>(random, 165);
  GuardedArray<TypeParam> dgate(165, 0);
  GuardedArray<TypeParam> dup(165, 0);
  ASSERT_EQ(SwigluBackward(shape, dy.data(), gate.data(), up.data(), dgate.data(), dup.data()),
            Status::kOk);
  ASSERT_EQ(SwigluBackward(shape, dy.data(), gate.data(), up.data(), gate.data(), up.data()),
            Status::kOk);
  EXPECT_TRUE(SameBits(gate.data(), dgate.data(), 165));
  EXPECT_TRUE(SameBits(up.data(), dup.data(), 165));
}

TEST(Activations, Swiglu_BadShape_IsRefused) {
  GuardedArray<float> x(64, 0);
  EXPECT_EQ(SwigluForward({.rows = 2, .cols = 8, .gate_up_stride = 7}, x.data(), x.data() + 16,
                          x.data() + 32),
            Status::kInvalidShape);
  EXPECT_EQ(SwigluForward({.rows = SIZE_MAX, .cols = 2, .gate_up_stride = 2}, x.data(),
                          x.data() + 16, x.data() + 32),
            Status::kSizeOverflow);
}

TYPED_TEST(Activations, BiasAddAndColumnSum_OddSizes_MatchFloat64) {
  std::mt19937 random(8);
  const size_t rows = 19;
  const size_t cols = 45;
  const auto bias = RandomTensor<TypeParam>(random, cols);
  auto x = RandomTensor<TypeParam>(random, rows * cols);
  Doubles sum(cols);
  Doubles with_bias = ToDoubles(x);
  for (size_t i = 0; i < with_bias.size(); ++i) {
    sum[i % cols] += with_bias[i];
    with_bias[i] += ToDouble(bias.data()[i % cols]);
  }
  GuardedArray<TypeParam> out(cols, 0);
  Workspace workspace(ColumnSumWorkspaceBytes(cols));
  ASSERT_EQ(ColumnSum(rows, cols, x.data(), out.data(), false, workspace.data(), workspace.bytes()),
            Status::kOk);
  ExpectClose(out, sum, 1e-6);
  const Doubles once = ToDoubles(out);
  ASSERT_EQ(ColumnSum(rows, cols, x.data(), out.data(), true, workspace.data(), workspace.bytes()),
            Status::kOk);
  for (size_t i = 0; i < cols; ++i) sum[i] += once[i];
  ExpectClose(out, sum, 1e-6);
  EXPECT_TRUE(workspace.array.GuardsIntact());
  ASSERT_EQ(BiasAdd(rows, cols, bias.data(), x.data()), Status::kOk);
  ExpectClose(x, with_bias, 0);
}

}  // namespace
}  // namespace geminid::kernels
