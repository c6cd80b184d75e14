#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/numeric/quantise/block_quantise_rule.h"
#include "kernels/numeric/quantise/line_table.h"

namespace geminid::kernels {
namespace {

// The magnitudes by the definition, in float64: powers of ten at the codes 2^j - 1, even steps
// between them.
std::vector<double> Defined(int pieces, bool zero_is_lowest) {
  std::vector<double> magnitudes;
  for (int j = 0; j < pieces; ++j) {
    const double from = j == 0 && zero_is_lowest ? 0.0 : std::pow(10.0, j - pieces);
    const double to = std::pow(10.0, j + 1 - pieces);
    for (int i = 0; i < 1 << j; ++i) magnitudes.push_back(from + (to - from) * i / (1 << j));
  }
  magnitudes.push_back(1.0);
  return magnitudes;
}

uint32_t BitsOf(float x) { return std::bit_cast<uint32_t>(x); }

TEST(BlockQuantise, EveryCode_HasTheDefinedMagnitude) {
  const std::vector<double> sign = Defined(7, true), unsign = Defined(8, false);
  ASSERT_EQ(sign.size(), 128u);
  ASSERT_EQ(unsign.size(), 256u);
  for (const float scale : {1.0F, 3.7e-5F, 1.1e30F}) {
    for (uint32_t code = 0; code < 256; ++code) {
      const auto byte = static_cast<uint8_t>(code);
      const double factor = code < 128 ? scale : -scale;
      const double expected = sign[code % 128] * factor;
      EXPECT_NEAR(DecodeSigned(byte, scale), expected, std::fabs(expected) * 2e-6) << code;
      EXPECT_NEAR(DecodeUnsigned(byte, scale), unsign[code] * scale, unsign[code] * scale * 2e-6);
    }
    EXPECT_EQ(DecodeSigned(127, scale), scale);  // the largest is exact
    EXPECT_EQ(DecodeSigned(255, scale), -scale);
    EXPECT_EQ(DecodeUnsigned(255, scale), scale);
    EXPECT_GT(DecodeUnsigned(0, scale), 0.0F);  // and the unsigned map has no zero
  }
}

TEST(BlockQuantise, EveryCodeAtManyScales_SurvivesTheRoundTrip) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const uint32_t bits = 0x00800000u + static_cast<uint32_t>(random()) % 0x7F000000u;
    const QuantiseScale s = ScaleOfLargest(bits);
    if (s.scale < 1e-30F || s.scale > 1e36F) continue;  // towards the ends of fp32 bits are lost
    for (uint32_t code = 0; code < 256; ++code) {
      const auto byte = static_cast<uint8_t>(code);
      ASSERT_EQ(EncodeSigned(DecodeSigned(byte, s.scale), s.inverse), byte) << s.scale;
      ASSERT_EQ(EncodeUnsigned(DecodeUnsigned(byte, s.scale), s.inverse), byte) << s.scale;
    }
  }
}

// Brute force over all codes, in float64. Where two are as near as fp32 can tell, either will do.
TEST(BlockQuantise, AnyValue_GetsTheNearestCode) {
  const std::vector<double> sign = Defined(7, true), unsign = Defined(8, false);
  std::mt19937 random(2);
  std::uniform_real_distribution<double> decade(-10.0, 0.0);
  const auto nearest = [](const std::vector<double>& magnitudes, double y) {
    double least = 2.0;
    for (const double m : magnitudes) least = std::min(least, std::fabs(m - y));
    return least;
  };
  for (int i = 0; i < 20'000; ++i) {
    const auto y = static_cast<float>(std::pow(10.0, decade(random)));
    const double slack = 1e-6 * y;
    const uint8_t s = EncodeSigned(y, 1.0F), u = EncodeUnsigned(y, 1.0F);
    ASSERT_LT(s, 128);
    EXPECT_EQ(EncodeSigned(-y, 1.0F), s + 128);
    EXPECT_LE(std::fabs(sign[s] - y), nearest(sign, y) + slack) << y;
    EXPECT_LE(std::fabs(unsign[u] - y), nearest(unsign, y) + slack) << y;
  }
}

TEST(BlockQuantise, FirstDecade_WithinTheDocumentedError) {
  for (double y = 0.1; y <= 1.0; y += 1e-5) {
    const auto value = static_cast<float>(y);
    EXPECT_NEAR(DecodeSigned(EncodeSigned(value, 1.0F), 1.0F), y, 0.071 * y);
    EXPECT_NEAR(DecodeUnsigned(EncodeUnsigned(value, 1.0F), 1.0F), y, 0.036 * y);
  }
}

TEST(BlockQuantise, SpecialLargest_ScaleIsZeroOrNaN) {
  EXPECT_EQ(ScaleOfLargest(0).scale, 0.0F);
  EXPECT_EQ(ScaleOfLargest(0x007FFFFFu).inverse, 0.0F);  // the largest subnormal
  EXPECT_EQ(ScaleOfLargest(0x00800000u).inverse, 0x1p126F);
  EXPECT_TRUE(std::isfinite(ScaleOfLargest(BitsOf(std::numeric_limits<float>::max())).inverse));
  EXPECT_EQ(BitsOf(ScaleOfLargest(0x7F800000u).scale), 0x7FC00000u);
  EXPECT_EQ(BitsOf(ScaleOfLargest(0x7FFFFFFFu).scale), 0x7FC00000u);
  EXPECT_EQ(DecodeSigned(0, 0.0F), 0.0F);
  EXPECT_EQ(DecodeUnsigned(0, 0.0F), 0.0F);
  EXPECT_TRUE(std::isnan(DecodeSigned(0, ScaleOfLargest(0x7F800000u).scale)));
  EXPECT_TRUE(std::isnan(DecodeUnsigned(0, ScaleOfLargest(0x7F800000u).scale)));
}

TEST(BlockQuantise, CountOfScales_RoundsUp) {
  EXPECT_EQ(QuantiseScaleCount(0), 0u);
  EXPECT_EQ(QuantiseScaleCount(1), 1u);
  EXPECT_EQ(QuantiseScaleCount(256), 1u);
  EXPECT_EQ(QuantiseScaleCount(257), 2u);
}

// What lets vectors look at two lines instead of all: the least of the two is the least of all, in
// rounded arithmetic too.
template <int kPieces>
void ExpectTableGivesTheLeast(const QuantiseMap<kPieces>& map, const LineTable& table, float y) {
  float least = y * map.slope[0] + map.offset[0];
  for (int j = 1; j < kPieces; ++j) least = std::min(least, y * map.slope[j] + map.offset[j]);
  const uint32_t entry = (BitsOf(std::max(y, LineTable::kLowest)) >> 24) & 15;
  const float low = y * table.low_slope[entry] + table.low_offset[entry];
  const float high = y * table.high_slope[entry] + table.high_offset[entry];
  ASSERT_EQ(std::min(low, high), least) << y;
}

TEST(LineTable, AllMagnitudes_LeastOfTwoLinesIsLeastOfAll) {
  // All exponents with sampled mantissas, and every value around each corner.
  for (uint32_t bits = 0; bits <= BitsOf(1.0F) + 2; bits += 1021) {
    ExpectTableGivesTheLeast(kSignedMap, kSignedLines, std::bit_cast<float>(bits));
    ExpectTableGivesTheLeast(kUnsignedMap, kUnsignedLines, std::bit_cast<float>(bits));
  }
  for (const float corner : kUnsignedMap.power) {
    for (uint32_t bits = BitsOf(corner) - 1000; bits < BitsOf(corner) + 1000; ++bits) {
      const float y = std::min(std::bit_cast<float>(bits), 1.0000002F);
      ExpectTableGivesTheLeast(kSignedMap, kSignedLines, y);
      ExpectTableGivesTheLeast(kUnsignedMap, kUnsignedLines, y);
    }
  }
}

// The same of the one line that vectors of eight look at, after rounding to a code.
template <int kPieces>
void ExpectDecadeGivesTheCode(const QuantiseMap<kPieces>& map, const DecadeTable& table, float y) {
  const uint32_t upper = std::max<uint32_t>(BitsOf(y) >> 16, table.first);
  const uint32_t nearest = ((upper - table.first) * DecadeTable::kScale) >> 16;
  ASSERT_LT(nearest, DecadeTable::kEntries) << y;
  const uint32_t line = nearest + (y >= table.corner[nearest] ? 1 : 0);
  ASSERT_LT(line, DecadeTable::kEntries) << y;
  const float value = y * table.slope[line] + table.offset[line];
  ASSERT_EQ(BitsOf(value + kRoundToInteger) & 0xFFFFu, EncodeMagnitude(map, y)) << y;
}

TEST(DecadeTable, AllMagnitudes_CodeOfOneLineIsThatOfTheLeast) {
  for (uint32_t bits = 0; bits <= BitsOf(1.0F) + 2; bits += 1021) {
    ExpectDecadeGivesTheCode(kSignedMap, kSignedDecades, std::bit_cast<float>(bits));
    ExpectDecadeGivesTheCode(kUnsignedMap, kUnsignedDecades, std::bit_cast<float>(bits));
    if (HasFatalFailure()) return;
  }
  for (const float corner : kUnsignedMap.power) {
    for (uint32_t bits = BitsOf(corner) - 1000; bits < BitsOf(corner) + 1000; ++bits) {
      const float y = std::min(std::bit_cast<float>(bits), 1.0000002F);
      ExpectDecadeGivesTheCode(kSignedMap, kSignedDecades, y);
      ExpectDecadeGivesTheCode(kUnsignedMap, kUnsignedDecades, y);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace geminid::kernels
