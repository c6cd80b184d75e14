#include "kernels/numeric/norm/norm.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/kernels/for_each_target.h"
#include "tests/kernels/numeric/norm_reference.h"
#include "tests/kernels/test_arrays.h"

namespace geminid::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

uint64_t BitsOf(double x) { return std::bit_cast<uint64_t>(x); }

// The values spread over so many decades that a float64 sum rounds at almost every addition. So
// another order gives other bits.
std::vector<float> RandomValues(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& x : values)
    x = RandomValue(random, 1e-3) * std::exp2(static_cast<float>(random() % 40));
  return values;
}

std::vector<BFloat16> Narrow(const std::vector<float>& values) {
  std::vector<BFloat16> narrow(values.size());
  for (size_t i = 0; i < values.size(); ++i) narrow[i] = BFloat16::FromFloat(values[i]);
  return narrow;
}

// Counts on both sides of every boundary: a row, a block, several blocks.
TEST(Norm, EveryCountAndTarget_BitsOfReference) {
  const std::vector<float> values = RandomValues(3 * kNormBlock + 100, 1);
  const std::vector<BFloat16> narrow = Narrow(values);
  ForEachTarget([&] {
    for (const size_t count : {0, 1, 2, 15, 16, 17, 31, 33, 4095, 4096, 4097, 8192, 12345}) {
      for (const size_t shift : {0, 1, 7}) {
        SCOPED_TRACE(testing::Message() << count << " values from " << shift);
        SquareSum from_float{0.5}, from_bfloat16{0.5};
        ASSERT_EQ(AddSquares(values.data() + shift, count, &from_float), Status::kOk);
        ASSERT_EQ(AddSquares(narrow.data() + shift, count, &from_bfloat16), Status::kOk);
        ASSERT_EQ(BitsOf(from_float.sum),
                  BitsOf(reference::AddSquares(values.data() + shift, count, 0.5)));
        ASSERT_EQ(BitsOf(from_bfloat16.sum),
                  BitsOf(reference::AddSquares(narrow.data() + shift, count, 0.5)));
      }
    }
  });
}

TEST(Norm, CutAtTreeBoundaries_SameBitsAsOneCall) {
  const std::vector<float> values = RandomValues(5 * kNormTree + 3 * kNormBlock + 77, 2);
  SquareSum whole, parts;
  ASSERT_EQ(AddSquares(values.data(), values.size(), &whole), Status::kOk);
  size_t begin = 0;
  for (const size_t trees : {1, 3}) {
    ASSERT_EQ(AddSquares(values.data() + begin, trees * kNormTree, &parts), Status::kOk);
    begin += trees * kNormTree;
  }
  ASSERT_EQ(AddSquares(values.data() + begin, values.size() - begin, &parts), Status::kOk);
  EXPECT_EQ(BitsOf(parts.sum), BitsOf(whole.sum));
  EXPECT_EQ(BitsOf(whole.sum), BitsOf(reference::AddSquares(values.data(), values.size(), 0)));
}

// Every number of blocks in a tree, and several trees.
TEST(Norm, AnyNumberOfBlocks_HasTheBitsOfTheDefinition) {
  const std::vector<float> values = RandomValues(2 * kNormTree, 9);
  for (const size_t blocks : {1, 2, 3, 127, 128, 129, 255, 256, 257, 511, 512}) {
    SquareSum total = {0.25};
    ASSERT_EQ(AddSquares(values.data(), blocks * kNormBlock, &total), Status::kOk);
    EXPECT_EQ(BitsOf(total.sum),
              BitsOf(reference::AddSquares(values.data(), blocks * kNormBlock, 0.25)))
        << blocks;
  }
}

TEST(Norm, RandomValues_WithinDocumentedBoundOfLongDouble) {
  const std::vector<float> values = RandomValues(50 * kNormBlock, 3);
  long double exact = 0;
  for (const float x : values) exact += static_cast<long double>(x) * x;
  SquareSum total;
  ASSERT_EQ(AddSquares(values.data(), values.size(), &total), Status::kOk);
  const double roundings = kNormBlock / kNormLanes + 4 + 8 + 1;
  EXPECT_NEAR(total.sum / static_cast<double>(exact), 1.0, roundings * 0x1p-53);
}

// Closed form: integers sum without error. 1^2 + ... + n^2 = n (n + 1) (2n + 1) / 6.
TEST(Norm, Integers_ExactSum) {
  std::vector<float> values;
  for (int i = 1; i <= 10000; ++i) values.push_back(static_cast<float>(i % 2 ? i : -i));
  SquareSum total;
  ASSERT_EQ(AddSquares(values.data(), values.size(), &total), Status::kOk);
  EXPECT_EQ(total.sum, 10000.0 * 10001.0 * 20001.0 / 6.0);
}

TEST(Norm, LargestAndSmallestFloats_ExactAndFinite) {
  const std::vector<float> large(100000, std::numeric_limits<float>::max());
  SquareSum total;
  ASSERT_EQ(AddSquares(large.data(), large.size(), &total), Status::kOk);
  EXPECT_TRUE(total.AllFinite());
  const float tiny = std::numeric_limits<float>::denorm_min();
  total = {};
  ASSERT_EQ(AddSquares(&tiny, 1, &total), Status::kOk);
  EXPECT_EQ(total.sum, 0x1p-298);
}

TEST(Norm, OneNonFiniteValueAnywhere_IsFlagged) {
  ForEachTarget([] {
    for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
      for (size_t position = 0; position < 70; ++position) {
        std::vector<float> values(70, 1.0f);
        values[position] = bad;
        const std::vector<BFloat16> narrow = Narrow(values);
        SquareSum from_float, from_bfloat16;
        ASSERT_EQ(AddSquares(values.data(), values.size(), &from_float), Status::kOk);
        ASSERT_EQ(AddSquares(narrow.data(), narrow.size(), &from_bfloat16), Status::kOk);
        ASSERT_FALSE(from_float.AllFinite());
        ASSERT_FALSE(from_bfloat16.AllFinite());
        ASSERT_EQ(BitsOf(from_float.sum), BitsOf(reference::AddSquares(values.data(), 70, 0)));
      }
    }
  });
}

TEST(Norm, ManyPayloads_OneNaN) {
  const float payloads[] = {std::bit_cast<float>(0x7FC12345u), std::bit_cast<float>(0xFFFFFFFFu),
                            std::bit_cast<float>(0x7F800001u)};
  for (const float nan : payloads) {
    SquareSum total;
    ASSERT_EQ(AddSquares(&nan, 1, &total), Status::kOk);
    EXPECT_EQ(BitsOf(total.sum), BitsOf(std::numeric_limits<double>::quiet_NaN()));
    const float one = 1.0f;  // the NaN stays, whatever is added
    ASSERT_EQ(AddSquares(&one, 1, &total), Status::kOk);
    EXPECT_EQ(BitsOf(total.sum), BitsOf(std::numeric_limits<double>::quiet_NaN()));
  }
}

TEST(Norm, BadBuffers_RefusedAndTotalUnchanged) {
  const std::vector<float> values(8, 2.0f);
  SquareSum total{3.0};
  const float* null = nullptr;
  EXPECT_EQ(AddSquares(null, 1, &total), Status::kNullPointer);
  EXPECT_EQ(AddSquares(values.data(), 8, nullptr), Status::kNullPointer);
  const auto* odd = reinterpret_cast<const float*>(reinterpret_cast<uintptr_t>(values.data()) + 1);
  EXPECT_EQ(AddSquares(odd, 7, &total), Status::kMisaligned);
  EXPECT_EQ(AddSquares(values.data(), SIZE_MAX / 4, &total), Status::kSizeOverflow);
  EXPECT_EQ(AddSquares(null, 0, &total), Status::kOk);
  EXPECT_EQ(total.sum, 3.0);
}

}  // namespace
}  // namespace geminid::kernels
