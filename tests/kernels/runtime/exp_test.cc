// How loops are called, and the exponential that every softmax and sigmoid uses, on every
// instruction set.
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels/runtime/exp_test.cc"
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/max_isa.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/runtime/simd/f32x16-inl.h"
#include "kernels/runtime/simd/highway_limit.h"
#include "tests/kernels/for_each_target.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

int64_t Target() { return HWY_TARGET; }

void ExpAll(const float* x, size_t count, float* y) {
  for (size_t i = 0; i < count; i += kWidth) StoreN(Exp(LoadN(x + i, count - i)), y + i, count - i);
}

void RoundAll(const float* x, size_t count, BFloat16* y) {
  for (size_t i = 0; i < count; i += kWidth) StoreN(LoadN(x + i, count - i), y + i, count - i);
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {
namespace {

// Distance in units in the last place of the correctly rounded result.
double ErrorUlp(float got, double want) {
  const auto rounded = static_cast<float>(want);
  const double ulp =
      std::nextafter(std::abs(rounded), std::numeric_limits<float>::infinity()) - std::abs(rounded);
  return std::abs(static_cast<double>(got) - want) / ulp;
}

// Better targets have lower bits.
TEST(KernelLoop, OnEachTarget_IsTheBestThatIsAllowed) {
  int64_t all = 0;
  ForEachTarget([&] {
    const int64_t allowed = hwy::SupportedTargets() & HWY_TARGETS;  // that have code
    const int64_t target = GEMINID_KERNEL_LOOP(Target)();
    EXPECT_EQ(target, allowed & -allowed);
    all |= allowed;
  });
  const int64_t best = GEMINID_KERNEL_LOOP(Target)();
  EXPECT_EQ(best, all & -all);
  EXPECT_EQ(best & HighwayTargetsAbove(base::MaxIsa().value_or(base::Isa::kAmx)), 0);
}

TEST(Exp, WholeRange_WithinOneUlp) {
  // Every 211th float in magnitude, with both signs, to beyond both ends of the range.
  std::vector<float> x;
  for (uint32_t bits = 0; bits < std::bit_cast<uint32_t>(105.0F); bits += 211) {
    x.push_back(std::bit_cast<float>(bits));
    if (x.back() < 88.72F) x.push_back(-x.back());
  }
  std::vector<float> y(x.size());
  ForEachTarget([&] {
    GEMINID_KERNEL_LOOP(ExpAll)(x.data(), x.size(), y.data());
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = std::exp(static_cast<double>(x[i]));
      if (want > std::numeric_limits<float>::max()) continue;
      worst = std::max(worst, ErrorUlp(y[i], want));
    }
    EXPECT_LT(worst, 1.0);
  });
}

TEST(Exp, SpecialValues_Exact) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {0.0F, -0.0F, infinity, -infinity, 89.0F, 1e30F, -104.5F, -1e30F};
  const std::vector<float> want = {1.0F, 1.0F, infinity, 0.0F, infinity, infinity, 0.0F, 0.0F};
  std::vector<float> y(x.size());
  ForEachTarget([&] {
    GEMINID_KERNEL_LOOP(ExpAll)(x.data(), x.size(), y.data());
    EXPECT_EQ(y, want);
    const float nan = std::nanf("");
    GEMINID_KERNEL_LOOP(ExpAll)(&nan, 1, y.data());
    EXPECT_TRUE(std::isnan(y[0]));
  });
}

TEST(BFloat16Store, AllUpperHalvesNearEveryTie_RoundsAsTheScalarType) {
  std::vector<float> x;
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t lower : {0x0000u, 0x0001u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      x.push_back(std::bit_cast<float>((upper << 16) | lower));
    }
  }
  std::vector<BFloat16> y(x.size());
  ForEachTarget([&] {
    GEMINID_KERNEL_LOOP(RoundAll)(x.data(), x.size(), y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(y[i].bits, BFloat16::FromFloat(x[i]).bits) << std::bit_cast<uint32_t>(x[i]);
    }
  });
}

}  // namespace
}  // namespace geminid::kernels
#endif  // HWY_ONCE
