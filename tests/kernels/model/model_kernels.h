// Shared by the tests of the transformer kernels: random tensors, float64 views of them, bounds
// that follow from the rounding of T, and numeric derivatives.
#ifndef GEMINID_TESTS_KERNELS_MODEL_MODEL_KERNELS_H_
#define GEMINID_TESTS_KERNELS_MODEL_MODEL_KERNELS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <random>
#include <type_traits>
#include <vector>

#include "hwy/targets.h"
#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/status.h"
#include "tests/kernels/for_each_target.h"
#include "tests/kernels/test_arrays.h"

namespace geminid::kernels {

using ElementTypes = ::testing::Types<float, BFloat16>;

using Doubles = std::vector<double>;

template <typename T>
T ToElement(double value) {
  if constexpr (std::is_same_v<T, float>) {
    return static_cast<float>(value);
  } else {
    return BFloat16::FromFloat(static_cast<float>(value));
  }
}

inline double ToDouble(float value) { return value; }
inline double ToDouble(BFloat16 value) { return value.ToFloat(); }

template <typename T>
Doubles ToDoubles(const GuardedArray<T>& from) {
  Doubles out(from.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = ToDouble(from.data()[i]);
  return out;
}

template <typename T>
GuardedArray<T> FromDoubles(const Doubles& from, size_t shift = 0) {
  GuardedArray<T> out(from.size(), shift);
  for (size_t i = 0; i < from.size(); ++i) out[i] = ToElement<T>(from[i]);
  return out;
}

// Normal values of standard deviation `sigma` around `mean`.
template <typename T>
GuardedArray<T> RandomTensor(std::mt19937& random, size_t count, double sigma = 1.0,
                             double mean = 0.0, size_t shift = 0) {
  std::normal_distribution<double> normal(mean, sigma);
  GuardedArray<T> out(count, shift);
  for (size_t i = 0; i < count; ++i) out[i] = ToElement<T>(normal(random));
  return out;
}

// Workspace of exactly `bytes`, between guards.
struct Workspace {
  explicit Workspace(size_t bytes) : array(bytes, 0) {}
  void* data() { return array.data(); }
  size_t bytes() const { return array.size(); }
  GuardedArray<char> array;
};

// Half a unit in the last place of T, relative: the rounding error that a result may have.
template <typename T>
constexpr double RoundingOf() {
  return std::is_same_v<T, float> ? 0x1p-24 : 0x1p-8;
}

// |got - want| <= rounding of T + float_error * scale, element by element. `float_error` bounds the
// fp32 arithmetic before the rounding; scale is the largest |want| unless given.
template <typename T>
void ExpectClose(const GuardedArray<T>& got, const Doubles& want, double float_error,
                 double scale = 0) {
  ASSERT_EQ(got.size(), want.size());
  EXPECT_TRUE(got.GuardsIntact());
  if (scale == 0) {
    for (const double value : want) scale = std::max(scale, std::abs(value));
  }
  for (size_t i = 0; i < want.size(); ++i) {
    const double bound = 1.001 * RoundingOf<T>() * std::abs(want[i]) + float_error * scale;
    ASSERT_LE(std::abs(ToDouble(got.data()[i]) - want[i]), bound)
        << "element " << i << ": got " << ToDouble(got.data()[i]) << ", want " << want[i];
  }
}

// d f / d x by central differences in float64; good to about 1e-9 of the scale of f.
inline Doubles NumericGradient(const std::function<double(const Doubles&)>& f, Doubles x) {
  constexpr double kStep = 1e-5;
  Doubles gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double saved = x[i];
    x[i] = saved + kStep;
    const double above = f(x);
    x[i] = saved - kStep;
    const double below = f(x);
    x[i] = saved;
    gradient[i] = (above - below) / (2 * kStep);
  }
  return gradient;
}

inline double Dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Expects `run`, which returns an array, to give the same bits on every target that has fused
// multiply-add (AVX2 and up here), and on a second run.
template <typename Run>
void ExpectSameBitsOnFmaTargets(Run run) {
  const auto want = run();
  ForEachTarget([&] {
    if ((hwy::SupportedTargets() & (HWY_AVX2 | HWY_AVX3 | HWY_NEON)) == 0) return;
    const auto got = run();
    ASSERT_EQ(got.size(), want.size());
    EXPECT_TRUE(SameBits(got.data(), want.data(), want.size()));
  });
}

}  // namespace geminid::kernels

#endif  // GEMINID_TESTS_KERNELS_MODEL_MODEL_KERNELS_H_
