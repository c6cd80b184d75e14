#include "kernels/numeric/cast/cast.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/kernels/for_each_target.h"
#include "tests/kernels/numeric/cast_reference.h"
#include "tests/kernels/test_arrays.h"

namespace geminid::kernels {
namespace {

uint16_t Rounded(uint32_t float_bits) {
  return BFloat16::FromFloat(std::bit_cast<float>(float_bits)).bits;
}

TEST(BFloat16, NamedValues_RoundToNearestEven) {
  EXPECT_EQ(Rounded(0x3F800000u), 0x3F80);  // 1
  EXPECT_EQ(Rounded(0x3F808000u), 0x3F80);  // a tie, to even: down
  EXPECT_EQ(Rounded(0x3F818000u), 0x3F82);  // a tie, to even: up
  EXPECT_EQ(Rounded(0x3F808001u), 0x3F81);  // above the tie
  EXPECT_EQ(Rounded(0x3F817FFFu), 0x3F81);  // below the tie
  EXPECT_EQ(Rounded(0x3FFFFFFFu), 0x4000);  // into the next binade
  EXPECT_EQ(Rounded(0x7F7FFFFFu), 0x7F80);  // FLT_MAX overflows
  EXPECT_EQ(Rounded(0x7F7F7FFFu), 0x7F7F);  // the last that does not overflow
  EXPECT_EQ(Rounded(0x80000000u), 0x8000);  // -0
  EXPECT_EQ(Rounded(0x00008000u), 0x0000);  // half the least subnormal, to even
  EXPECT_EQ(Rounded(0x00008001u), 0x0001);
  EXPECT_EQ(Rounded(0xFF800000u), 0xFF80);  // -infinity
  EXPECT_EQ(Rounded(0x7F800001u), 0x7FC0);  // a signalling NaN becomes quiet, not infinite
  EXPECT_EQ(Rounded(0xFFFFFFFFu), 0xFFFF);  // a NaN never carries into the sign
}

TEST(BFloat16, EveryPattern_SurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const BFloat16 x{static_cast<uint16_t>(bits)};
    const BFloat16 back = BFloat16::FromFloat(x.ToFloat());
    if (std::isnan(x.ToFloat())) {
      ASSERT_EQ(back.bits, bits | 0x0040);
    } else {
      ASSERT_EQ(back.bits, bits);
    }
  }
}

// Compares with real arithmetic: no other bf16 is nearer, and the even one wins a tie.
TEST(BFloat16, RandomValues_NearestInRealArithmetic) {
  std::mt19937 random(1);
  for (int i = 0; i < 1'000'000; ++i) {
    const double exact = AnyFloat(random);
    if (!std::isfinite(exact) || std::fabs(exact) > 3.38e38) continue;
    const BFloat16 x = BFloat16::FromFloat(static_cast<float>(exact));
    const double error = std::fabs(x.ToFloat() - exact);
    for (const int step : {-1, 1}) {
      if ((x.bits & 0x7FFF) == 0 && step < 0) continue;
      const BFloat16 other{static_cast<uint16_t>(x.bits + step)};
      const double other_error = std::fabs(other.ToFloat() - exact);
      ASSERT_TRUE(error < other_error || (error == other_error && x.bits % 2 == 0)) << exact;
    }
  }
}

TEST(Cast, AnyBitsEveryCountAndTarget_BitsOfReference) {
  ForEachTarget([] {
    std::mt19937 random(2);
    for (const size_t count : {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 100, 5000}) {
      for (const size_t shift : {0, 1, 5}) {
        GuardedArray<float> wide(count, shift), back(count, shift), expected_back(count, 0);
        GuardedArray<BFloat16> narrow(count, shift), expected(count, 0);
        for (size_t i = 0; i < count; ++i) wide[i] = AnyFloat(random);
        reference::CastToBFloat16(wide.data(), count, expected.data());
        ASSERT_EQ(CastToBFloat16(wide.data(), count, narrow.data()), Status::kOk);
        ASSERT_TRUE(SameBits(narrow.data(), expected.data(), count)) << count;
        reference::CastToFloat(expected.data(), count, expected_back.data());
        ASSERT_EQ(CastToFloat(narrow.data(), count, back.data()), Status::kOk);
        ASSERT_TRUE(SameBits(back.data(), expected_back.data(), count)) << count;
        ASSERT_TRUE(narrow.GuardsIntact() && back.GuardsIntact()) << count;
      }
    }
  });
}

TEST(Cast, EdgesOfRounding_BitsOfReferenceOnEveryTarget) {
  std::vector<float> wide;
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t lower : {0x0000u, 0x0001u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      wide.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  std::vector<BFloat16> expected(wide.size()), narrow(wide.size());
  reference::CastToBFloat16(wide.data(), wide.size(), expected.data());
  ForEachTarget([&] {
    ASSERT_EQ(CastToBFloat16(wide.data(), wide.size(), narrow.data()), Status::kOk);
    ASSERT_EQ(narrow, expected);
  });
}

TEST(Cast, RowsOfAnyStride_BitsOfReferenceAndNothingBetweenRows) {
  ForEachTarget([] {
    std::mt19937 random(3);
    for (const size_t cols : {1, 7, 16, 33, 100}) {
      for (const size_t gap : {0, 1, 9}) {
        SCOPED_TRACE(testing::Message() << cols << " columns, " << gap << " between rows");
        const size_t rows = 5, stride = cols + gap, count = rows * stride - gap;
        std::vector<float> wide(count), back(rows * cols);
        for (float& value : wide) value = AnyFloat(random);
        std::vector<BFloat16> expected(count), narrow(count, BFloat16{7});
        std::vector<float> expected_back(count);
        reference::CastToBFloat16(wide.data(), count, expected.data());
        reference::CastToFloat(expected.data(), count, expected_back.data());
        const CastRows down = {rows, cols, stride, stride};
        ASSERT_EQ(CastRowsToBFloat16(down, wide.data(), narrow.data()), Status::kOk);
        const CastRows up = {rows, cols, stride, cols};
        ASSERT_EQ(CastRowsToFloat(up, narrow.data(), back.data()), Status::kOk);
        for (size_t i = 0; i < count; ++i) {
          const size_t row = i / stride, col = i % stride;
          ASSERT_EQ(narrow[i].bits, col < cols ? expected[i].bits : 7) << i;
          if (col < cols) {
            ASSERT_TRUE(SameBits(&back[row * cols + col], &expected_back[i], 1)) << i;
          }
        }
      }
    }
  });
}

TEST(Cast, RowsThatOverlapTheNext_AreRefused) {
  std::vector<float> wide(8);
  std::vector<BFloat16> narrow(8);
  EXPECT_EQ(CastRowsToBFloat16({2, 4, 3, 4}, wide.data(), narrow.data()), Status::kInvalidShape);
  EXPECT_EQ(CastRowsToFloat({2, 4, 4, 3}, narrow.data(), wide.data()), Status::kInvalidShape);
  EXPECT_EQ(CastRowsToFloat({2, 4, 4, 4}, nullptr, wide.data()), Status::kNullPointer);
  EXPECT_EQ(CastRowsToFloat({0, 4, 4, 4}, nullptr, nullptr), Status::kOk);
}

TEST(Cast, BadBuffers_RefusedBeforeWriting) {
  std::vector<float> wide(8, 1.0f);
  std::vector<BFloat16> narrow(8, BFloat16{7});
  EXPECT_EQ(CastToBFloat16(nullptr, 8, narrow.data()), Status::kNullPointer);
  EXPECT_EQ(CastToFloat(narrow.data(), 8, nullptr), Status::kNullPointer);
  auto* inside = reinterpret_cast<BFloat16*>(wide.data() + 4);
  EXPECT_EQ(CastToBFloat16(wide.data(), 8, inside), Status::kOverlap);
  EXPECT_EQ(CastToFloat(inside, 8, wide.data()), Status::kOverlap);
  auto* odd = reinterpret_cast<BFloat16*>(reinterpret_cast<uintptr_t>(narrow.data()) + 1);
  EXPECT_EQ(CastToBFloat16(wide.data(), 7, odd), Status::kMisaligned);
  EXPECT_EQ(CastToBFloat16(wide.data(), SIZE_MAX / 3, narrow.data()), Status::kSizeOverflow);
  EXPECT_EQ(wide, std::vector<float>(8, 1.0f));
  EXPECT_EQ(narrow, std::vector<BFloat16>(8, BFloat16{7}));
}

}  // namespace
}  // namespace geminid::kernels
