#include "kernels/numeric/norm/cast_norm.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "kernels/numeric/norm/norm.h"
#include "tests/kernels/for_each_target.h"
#include "tests/kernels/numeric/cast_reference.h"
#include "tests/kernels/numeric/norm_reference.h"
#include "tests/kernels/test_arrays.h"

namespace geminid::kernels {
namespace {

uint64_t BitsOf(double x) { return std::bit_cast<uint64_t>(x); }

double SumOf(const Float16* values, size_t count, double sum) {
  std::vector<float> wide(count);
  reference::CastToFloat(values, count, wide.data());
  return reference::AddSquares(wide.data(), count, sum);
}
double SumOf(const BFloat16* values, size_t count, double sum) {
  return reference::AddSquares(values, count, sum);
}

Status Fused(const float* in, size_t n, BFloat16* out, SquareSum* total) {
  return CastToBFloat16AndAddSquares(in, n, out, total);
}
Status Fused(const float* in, size_t n, Float16* out, SquareSum* total) {
  return CastToFloat16AndAddSquares(in, n, out, total);
}
void Reference(const float* in, size_t n, BFloat16* out) { reference::CastToBFloat16(in, n, out); }
void Reference(const float* in, size_t n, Float16* out) { reference::CastToFloat16(in, n, out); }

// Converts there and back. Expects the bits of separate conversions and the sum of a separate norm.
template <typename Half>
void ExpectAsSeparately(std::mt19937& random, size_t count, size_t shift, bool any_bits) {
  GuardedArray<float> wide(count, shift), back(count, shift), expected_back(count, 0);
  GuardedArray<Half> half(count, shift), expected(count, 0);
  for (size_t i = 0; i < count; ++i) {
    wide[i] = any_bits ? AnyFloat(random) : RandomValue(random, 1.0);
  }
  Reference(wide.data(), count, expected.data());
  reference::CastToFloat(expected.data(), count, expected_back.data());
  SquareSum narrowing{0.25}, widening{0.25};
  ASSERT_EQ(Fused(wide.data(), count, half.data(), &narrowing), Status::kOk);
  ASSERT_EQ(CastToFloatAndAddSquares(half.data(), count, back.data(), &widening), Status::kOk);
  ASSERT_TRUE(SameBits(half.data(), expected.data(), count)) << count;
  ASSERT_TRUE(SameBits(back.data(), expected_back.data(), count)) << count;
  ASSERT_EQ(BitsOf(narrowing.sum), BitsOf(SumOf(expected.data(), count, 0.25))) << count;
  ASSERT_EQ(BitsOf(widening.sum), BitsOf(narrowing.sum)) << count;
  ASSERT_TRUE(half.GuardsIntact() && back.GuardsIntact()) << count;
}

TEST(CastNorm, EveryCountPlacementAndTarget_AsCastAndNormSeparately) {
  ForEachTarget([] {
    std::mt19937 random(41);
    for (const size_t count : {0, 1, 15, 16, 17, 33, 4095, 4096, 4097, 9001}) {
      for (const size_t shift : {0, 1, 7}) {
        for (const bool any_bits : {false, true}) {
          ExpectAsSeparately<BFloat16>(random, count, shift, any_bits);
          ExpectAsSeparately<Float16>(random, count, shift, any_bits);
        }
      }
    }
  });
}

// Large aligned arrays use stores that bypass the cache.
TEST(CastNorm, LargeAlignedArrays_AsCastAndNormSeparately) {
  constexpr size_t kCount = (size_t{2} << 20) + 77;  // 4 MiB of 16-bit values
  ForEachTarget([] {
    std::mt19937 random(42);
    GuardedArray<float> wide(kCount, 0);
    GuardedArray<BFloat16> half(kCount, 0), expected(kCount, 0);
    for (size_t i = 0; i < kCount; ++i) wide[i] = static_cast<float>(random() % 2000) - 1000.3F;
    reference::CastToBFloat16(wide.data(), kCount, expected.data());
    SquareSum total;
    ASSERT_EQ(CastToBFloat16AndAddSquares(wide.data(), kCount, half.data(), &total), Status::kOk);
    ASSERT_TRUE(SameBits(half.data(), expected.data(), kCount));
    ASSERT_EQ(BitsOf(total.sum), BitsOf(reference::AddSquares(expected.data(), kCount, 0)));
    ASSERT_TRUE(half.GuardsIntact());
  });
}

TEST(CastNorm, CutAtTrees_SameBitsAsOneCall) {
  constexpr size_t kCount = 3 * kNormTree + 5 * kNormBlock + 9;
  std::mt19937 random(43);
  std::vector<float> wide(kCount);
  for (float& x : wide) x = RandomValue(random, 1.0);
  std::vector<BFloat16> half(kCount);
  SquareSum whole, parts;
  ASSERT_EQ(CastToBFloat16AndAddSquares(wide.data(), kCount, half.data(), &whole), Status::kOk);
  constexpr size_t kCut = 2 * kNormTree;
  ASSERT_EQ(CastToBFloat16AndAddSquares(wide.data(), kCut, half.data(), &parts), Status::kOk);
  ASSERT_EQ(CastToBFloat16AndAddSquares(wide.data() + kCut, kCount - kCut, half.data(), &parts),
            Status::kOk);
  EXPECT_EQ(BitsOf(parts.sum), BitsOf(whole.sum));
}

// 65520 is finite in fp32 and bf16, and rounds to infinity in fp16.
TEST(CastNorm, OverflowInTheCast_IsFlagged) {
  ForEachTarget([] {
    for (size_t position = 0; position < 40; ++position) {
      std::vector<float> wide(40, 65504.0F);
      std::vector<Float16> fp16(40);
      std::vector<BFloat16> bf16(40);
      SquareSum before, after, other;
      ASSERT_EQ(CastToFloat16AndAddSquares(wide.data(), 40, fp16.data(), &before), Status::kOk);
      wide[position] = 65520.0F;
      ASSERT_EQ(CastToFloat16AndAddSquares(wide.data(), 40, fp16.data(), &after), Status::kOk);
      ASSERT_EQ(CastToBFloat16AndAddSquares(wide.data(), 40, bf16.data(), &other), Status::kOk);
      EXPECT_TRUE(before.AllFinite());
      EXPECT_FALSE(after.AllFinite());
      EXPECT_TRUE(other.AllFinite());
    }
  });
}

// The NaN with all bits set, which rounding by addition would turn into a zero.
TEST(CastNorm, OneNaNAnywhere_StaysOneAndIsFlagged) {
  constexpr size_t kCount = 2 * kNormBlock + 24;
  ForEachTarget([] {
    std::mt19937 random(44);
    std::vector<float> wide(kCount);
    for (float& x : wide) x = RandomValue(random, 1.0);
    std::vector<BFloat16> half(kCount), expected(kCount);
    for (const size_t block : {size_t{0}, kNormBlock, 2 * kNormBlock}) {
      for (size_t i = 0; i < 24; ++i) {
        const float number = std::exchange(wide[block + i], std::bit_cast<float>(0xFFFFFFFFu));
        reference::CastToBFloat16(wide.data(), kCount, expected.data());
        SquareSum total;
        ASSERT_EQ(CastToBFloat16AndAddSquares(wide.data(), kCount, half.data(), &total),
                  Status::kOk);
        ASSERT_TRUE(SameBits(half.data(), expected.data(), kCount)) << block + i;
        ASSERT_TRUE(std::isnan(total.sum)) << block + i;
        wide[block + i] = number;
      }
    }
  });
}

TEST(CastNorm, BadBuffers_RefusedAndNothingChanged) {
  std::vector<float> wide(8, 2.0F);
  std::vector<BFloat16> half(8, BFloat16{7});
  SquareSum total{3.0};
  EXPECT_EQ(CastToBFloat16AndAddSquares(nullptr, 8, half.data(), &total), Status::kNullPointer);
  EXPECT_EQ(CastToBFloat16AndAddSquares(wide.data(), 8, half.data(), nullptr),
            Status::kNullPointer);
  auto* inside = reinterpret_cast<BFloat16*>(wide.data() + 2);
  EXPECT_EQ(CastToBFloat16AndAddSquares(wide.data(), 8, inside, &total), Status::kOverlap);
  EXPECT_EQ(CastToFloatAndAddSquares(half.data(), SIZE_MAX / 3, wide.data(), &total),
            Status::kSizeOverflow);
  EXPECT_EQ(total.sum, 3.0);
  EXPECT_EQ(half, std::vector<BFloat16>(8, BFloat16{7}));
}

}  // namespace
}  // namespace geminid::kernels
