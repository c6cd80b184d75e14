#include "kernels/runtime/common/float16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/numeric/cast/cast.h"
#include "tests/kernels/for_each_target.h"
#include "tests/kernels/numeric/cast_reference.h"
#include "tests/kernels/test_arrays.h"

namespace geminid::kernels {
namespace {

constexpr uint32_t kPatterns = 0x10000;

bool IsNaN(uint32_t bits) { return (bits & 0x7FFF) > 0x7C00; }

// The value by the definition in IEEE-754, in float64.
double Defined(uint32_t bits) {
  const int exponent = static_cast<int>((bits >> 10) & 0x1F);
  const int mantissa = static_cast<int>(bits & 0x3FF);
  const double sign = (bits & 0x8000) ? -1.0 : 1.0;
  if (exponent == 31) return mantissa == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

uint16_t Rounded(double value) { return Float16::FromFloat(static_cast<float>(value)).bits; }

TEST(Float16, EveryPattern_HasTheDefinedValueAndSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < kPatterns; ++bits) {
    const float value = Float16{static_cast<uint16_t>(bits)}.ToFloat();
    const Float16 back = Float16::FromFloat(value);
    if (IsNaN(bits)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_EQ(back.bits, bits | 0x0200) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(value), Defined(bits)) << bits;
      ASSERT_EQ(std::signbit(value), bits >= 0x8000) << bits;
      ASSERT_EQ(back.bits, bits);
    }
  }
}

// Between any two neighbours: the middle goes to the even one, and the fp32 values on both sides go
// to theirs. Rounding is monotonic, so this determines the rounding of every fp32 value.
TEST(Float16, EveryMiddle_TiesToEvenAndItsNeighboursToNearest) {
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const double above = bits == 0x7BFF ? 65536.0 : Defined(bits + 1);  // beyond: as if unbounded
    const float middle = static_cast<float>((Defined(bits) + above) / 2);
    const uint32_t even = bits + (bits & 1);
    for (const uint32_t sign : {0u, 0x8000u}) {
      const float factor = sign ? -1.0F : 1.0F;
      ASSERT_EQ(Rounded(factor * middle), sign | even);
      ASSERT_EQ(Rounded(factor * std::nextafter(middle, 0.0F)), sign | bits);
      ASSERT_EQ(Rounded(factor * std::nextafter(middle, 1e9F)), sign | (bits + 1));
    }
  }
}

TEST(Float16, EndsOfTheRange_GiveTheNamedPatterns) {
  EXPECT_EQ(Rounded(1.0), 0x3C00);
  EXPECT_EQ(Rounded(65504.0), 0x7BFF);
  EXPECT_EQ(Rounded(65519.996), 0x7BFF);
  EXPECT_EQ(Rounded(65520.0), 0x7C00);
  EXPECT_EQ(Rounded(3.4e38), 0x7C00);
  EXPECT_EQ(Rounded(-INFINITY), 0xFC00);
  EXPECT_EQ(Rounded(0x1p-24), 0x0001);
  EXPECT_EQ(Rounded(0x1p-25), 0x0000);
  EXPECT_EQ(Rounded(-0x1p-149), 0x8000);
  EXPECT_EQ(Float16::FromFloat(std::bit_cast<float>(0x7F800001u)).bits, 0x7E00);
  EXPECT_EQ(Float16::FromFloat(std::bit_cast<float>(0xFFFFFFFFu)).bits, 0xFFFF);
}

TEST(Float16, EveryPatternOnEveryTarget_WidensAsTheScalar) {
  std::vector<Float16> half(kPatterns);
  for (uint32_t i = 0; i < kPatterns; ++i) half[i] = {static_cast<uint16_t>(i)};
  std::vector<float> expected(kPatterns), wide(kPatterns);
  reference::CastToFloat(half.data(), half.size(), expected.data());
  ForEachTarget([&] {
    ASSERT_EQ(CastToFloat(half.data(), half.size(), wide.data()), Status::kOk);
    ASSERT_TRUE(SameBits(wide.data(), expected.data(), wide.size()));
  });
}

// Every upper half of fp32 with the lower bits on both sides of every kind of tie.
TEST(Float16, EdgesOfRoundingOnEveryTarget_NarrowAsTheScalar) {
  std::vector<float> wide;
  for (uint32_t upper = 0; upper < kPatterns; ++upper) {
    for (const uint32_t lower : {0x0000u, 0x0001u, 0x0FFFu, 0x1000u, 0x1001u, 0x2FFFu, 0x3000u,
                                 0x3001u, 0x8000u, 0xEFFFu, 0xF000u, 0xFFFFu}) {
      wide.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  std::mt19937 random(5);
  for (int i = 0; i < 300'007; ++i) wide.push_back(AnyFloat(random));
  std::vector<Float16> expected(wide.size()), half(wide.size());
  reference::CastToFloat16(wide.data(), wide.size(), expected.data());
  ForEachTarget([&] {
    ASSERT_EQ(CastToFloat16(wide.data(), wide.size(), half.data()), Status::kOk);
    ASSERT_EQ(half, expected);
  });
}

TEST(Float16, EveryCount_StaysInsideTheArrays) {
  ForEachTarget([] {
    for (size_t count = 0; count <= 40; ++count) {
      GuardedArray<float> wide(count, count % 3), back(count, count % 5);
      GuardedArray<Float16> half(count, count % 7);
      for (size_t i = 0; i < count; ++i) wide[i] = static_cast<float>(i) - 7.5F;
      ASSERT_EQ(CastToFloat16(wide.data(), count, half.data()), Status::kOk);
      ASSERT_EQ(CastToFloat(half.data(), count, back.data()), Status::kOk);
      ASSERT_TRUE(SameBits(wide.data(), back.data(), count));
      ASSERT_TRUE(half.GuardsIntact() && back.GuardsIntact());
    }
  });
}

}  // namespace
}  // namespace geminid::kernels
