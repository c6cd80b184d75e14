#include "kernels/numeric/accumulate/accumulate.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <random>
#include <vector>

#include "tests/kernels/for_each_target.h"
#include "tests/kernels/numeric/accumulate_reference.h"
#include "tests/kernels/test_arrays.h"

namespace geminid::kernels {
namespace {

TEST(Accumulate, AnyBitsEveryCountAndTarget_BitsOfReference) {
  ForEachTarget([] {
    std::mt19937 random(1);
    for (const size_t count : {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 100, 5000}) {
      for (const size_t shift : {0, 1, 5}) {
        GuardedArray<float> sum(count, shift), expected(count, 0), gradient(count, shift);
        GuardedArray<BFloat16> narrow(count, shift);
        for (size_t i = 0; i < count; ++i) {
          sum[i] = expected[i] = AnyFloat(random);
          gradient[i] = AnyFloat(random);
          narrow[i] = BFloat16{static_cast<uint16_t>(random())};
        }
        reference::Accumulate(gradient.data(), 0.3f, count, expected.data());
        reference::Accumulate(narrow.data(), -7.0f, count, expected.data());
        ASSERT_EQ(Accumulate(gradient.data(), 0.3f, count, sum.data()), Status::kOk);
        ASSERT_EQ(Accumulate(narrow.data(), -7.0f, count, sum.data()), Status::kOk);
        ASSERT_TRUE(SameBits(sum.data(), expected.data(), count)) << count;
        ASSERT_TRUE(sum.GuardsIntact());
      }
    }
  });
}

// There are two roundings, not one: with a fused multiply-add this product would leave 2^-46.
TEST(Accumulate, ProductIsRoundedBeforeTheSum) {
  const float x = 1.0f + 0x1p-23f;
  const std::vector<float> gradient(64, x);
  ForEachTarget([&] {
    std::vector<float> sum(64, -(1.0f + 0x1p-22f));
    ASSERT_EQ(Accumulate(gradient.data(), x, 64, sum.data()), Status::kOk);
    EXPECT_EQ(sum, std::vector<float>(64, 0.0f));
  });
}

TEST(Accumulate, ExactNumbers_ClosedForm) {
  const std::vector<BFloat16> gradient(50, BFloat16::FromFloat(3.0f));
  std::vector<float> sum(50, 1.0f);
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(Accumulate(gradient.data(), 0.25f, 50, sum.data()), Status::kOk);
  }
  EXPECT_EQ(sum, std::vector<float>(50, 4.0f));
}

TEST(Accumulate, BadArguments_RefusedBeforeWriting) {
  std::vector<float> gradient(8, 1.0f), sum(8, 5.0f);
  const float kNaN = std::numeric_limits<float>::quiet_NaN();
  const float kInfinity = std::numeric_limits<float>::infinity();
  const float* null = nullptr;
  EXPECT_EQ(Accumulate(gradient.data(), kNaN, 8, sum.data()), Status::kInvalidParameter);
  EXPECT_EQ(Accumulate(gradient.data(), kInfinity, 8, sum.data()), Status::kInvalidParameter);
  EXPECT_EQ(Accumulate(null, 1.0f, 8, sum.data()), Status::kNullPointer);
  EXPECT_EQ(Accumulate(gradient.data(), 1.0f, 8, nullptr), Status::kNullPointer);
  EXPECT_EQ(Accumulate(sum.data(), 1.0f, 8, sum.data()), Status::kOverlap);
  EXPECT_EQ(Accumulate(sum.data() + 1, 1.0f, 7, sum.data()), Status::kOverlap);
  auto* odd = reinterpret_cast<float*>(reinterpret_cast<uintptr_t>(sum.data()) + 2);
  EXPECT_EQ(Accumulate(gradient.data(), 1.0f, 7, odd), Status::kMisaligned);
  EXPECT_EQ(Accumulate(gradient.data(), 1.0f, SIZE_MAX / 4, sum.data()), Status::kSizeOverflow);
  EXPECT_EQ(sum, std::vector<float>(8, 5.0f));
}

}  // namespace
}  // namespace geminid::kernels
