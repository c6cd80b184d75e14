#include "kernels/numeric/split_master/split_master.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "tests/kernels/for_each_target.h"
#include "tests/kernels/numeric/split_master_reference.h"

namespace geminid::kernels {
namespace {

struct Arrays {
  explicit Arrays(size_t count) : master(count), weight(count), remainder(count), joined(count) {}
  std::vector<float> master;
  std::vector<BFloat16> weight;
  std::vector<int16_t> remainder;
  std::vector<float> joined;
};

// The bits `first + k * stride` for every k, split and joined by the kernels.
void ExpectExact(uint64_t first, uint64_t stride, Arrays& a) {
  const size_t count = a.master.size();
  for (size_t i = 0; i < count; ++i) {
    a.master[i] = std::bit_cast<float>(static_cast<uint32_t>(first + i * stride));
  }
  ASSERT_EQ(SplitMaster(a.master.data(), count, a.weight.data(), a.remainder.data()), Status::kOk);
  ASSERT_EQ(JoinMaster(a.weight.data(), a.remainder.data(), count, a.joined.data()), Status::kOk);
  ASSERT_EQ(std::memcmp(a.master.data(), a.joined.data(), count * sizeof(float)), 0);
  for (size_t i = 0; i < count; ++i) {
    const SplitFloat expected = SplitMasterBits(static_cast<uint32_t>(first + i * stride));
    ASSERT_EQ(a.weight[i].bits, expected.weight.bits) << std::hex << first + i * stride;
    ASSERT_EQ(a.remainder[i], expected.remainder) << std::hex << first + i * stride;
  }
}

TEST(SplitMaster, SampledPatterns_JoinGivesTheSameBits) {
  // An odd stride near 2^32 / 2^20 visits every exponent and all residues of the lower half.
  ForEachTarget([] {
    Arrays a(1 << 20);
    ExpectExact(0, 4097, a);
  });
}

// Every pattern of the upper half against the lower halves where rounding and signs change.
TEST(SplitMaster, EveryUpperHalf_EdgesOfTheLowerHalf_Exact) {
  for (uint32_t lower : {0x0000u, 0x0001u, 0x7FFEu, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFEu, 0xFFFFu}) {
    Arrays a(1 << 16);
    ExpectExact(lower, 1 << 16, a);
  }
}

// Compares with real arithmetic, not bits: the weight is the nearest bf16. A tie goes away from
// zero.
TEST(SplitMaster, FiniteValues_WeightIsNearest) {
  std::mt19937 random(7);
  for (int i = 0; i < 2'000'000; ++i) {
    const uint32_t bits = (i % 4 == 0) ? (static_cast<uint32_t>(random()) & 0xFFFF0000u) | 0x8000u
                                       : static_cast<uint32_t>(random());
    const double master = std::bit_cast<float>(bits);
    if (!std::isfinite(master) || std::fabs(master) > 3.38e38) continue;
    const BFloat16 weight = SplitMasterBits(bits).weight;
    const BFloat16 above{static_cast<uint16_t>(weight.bits + 1)};
    const double error = std::fabs(weight.ToFloat() - master);
    ASSERT_LT(error, std::fabs(above.ToFloat() - master)) << bits;
    if ((weight.bits & 0x7FFF) == 0) continue;
    const BFloat16 below{static_cast<uint16_t>(weight.bits - 1)};
    ASSERT_LE(error, std::fabs(below.ToFloat() - master)) << bits;
  }
}

// Covers all 2^32 patterns by halves, including NaN and infinities. The weight is the upper half
// plus a carry that depends on the lower half alone, and the remainder is the lower half. The first
// test shows this for every upper half with both values of the carry, the second for every lower
// half. So the pair joins to upper * 2^16 + (carry * 2^16 + remainder), and the bracket is the
// lower half.
TEST(SplitMaster, EveryUpperHalf_PlusCarryIsTheWeightForBothCarries) {
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t lower : {0x0000u, 0x7FFFu, 0x8000u, 0xFFFFu}) {
      const uint32_t carry = lower >= 0x8000 ? 1 : 0;
      const SplitFloat split = SplitMasterBits(upper << 16 | lower);
      ASSERT_EQ(split.weight.bits, (upper + carry) & 0xFFFF);
      ASSERT_EQ(JoinMasterBits(split), upper << 16 | lower);
    }
  }
}
TEST(SplitMaster, EveryLowerHalf_CarryAndRemainderAreTheLowerHalf) {
  for (uint32_t lower = 0; lower < 0x10000; ++lower) {
    for (const uint32_t upper : {0x0000u, 0x3F80u, 0x7F80u, 0x7FFFu, 0x8000u, 0xFFFFu}) {
      const SplitFloat split = SplitMasterBits(upper << 16 | lower);
      const uint32_t carry = (split.weight.bits - upper) & 0xFFFF;
      ASSERT_EQ(carry, lower >> 15);
      ASSERT_EQ((carry << 16) + static_cast<uint32_t>(int32_t{split.remainder}), lower);
    }
  }
}

struct Named {
  uint32_t master_bits;
  uint16_t weight_bits;
  int16_t remainder;
};

TEST(SplitMaster, NamedPatterns_GiveTheDocumentedWeights) {
  const Named cases[] = {
      {0x00000000u, 0x0000, 0},       // +0
      {0x80000000u, 0x8000, 0},       // -0
      {0x3F800000u, 0x3F80, 0},       // 1
      {0x3F808000u, 0x3F81, -32768},  // a tie goes away from zero
      {0xBF808000u, 0xBF81, -32768},  // also for negative values
      {0x3F807FFFu, 0x3F80, 32767},   // just below the tie
      {0x3FFFFFFFu, 0x4000, -1},      // carries into the exponent
      {0x00008000u, 0x0001, -32768},  // subnormal
      {0x7F7F7FFFu, 0x7F7F, 32767},   // the last that stays finite
      {0x7F7F8000u, 0x7F80, -32768},  // rounds to infinity
      {0x7F7FFFFFu, 0x7F80, -1},      // FLT_MAX
      {0x7F800000u, 0x7F80, 0},       // infinity
      {0xFF800000u, 0xFF80, 0},       // -infinity
      {0x7FC00000u, 0x7FC0, 0},       // the NaN of kernels/optimizers/adamw
      {0x7F800001u, 0x7F80, 1},       // NaN in the lower bits only
      {0x7FFFFFFFu, 0x8000, -1},      // NaN that carries into the sign
      {0xFFFFFFFFu, 0x0000, -1},
  };
  for (const Named& c : cases) {
    const SplitFloat split = SplitMasterBits(c.master_bits);
    EXPECT_EQ(split.weight.bits, c.weight_bits) << std::hex << c.master_bits;
    EXPECT_EQ(split.remainder, c.remainder) << std::hex << c.master_bits;
    EXPECT_EQ(JoinMasterBits(split), c.master_bits);
  }
}

TEST(SplitMaster, EveryTailLengthAndAlignment_EqualsReferenceAndStaysInside) {
  constexpr size_t kMost = 70;
  ForEachTarget([] {
    std::mt19937 random(3);
    std::vector<float> master(kMost + 4);
    for (float& x : master) x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    for (size_t count = 0; count <= kMost; ++count) {
      const size_t shift = count % 4;
      const BFloat16 guard{0xABCD};
      std::vector<BFloat16> weight(kMost + 8, guard), expected_weight = weight;
      std::vector<int16_t> remainder(kMost + 8, 0x1234), expected_remainder = remainder;
      reference::SplitMaster(master.data() + shift, count, expected_weight.data() + shift,
                             expected_remainder.data() + shift);
      ASSERT_EQ(SplitMaster(master.data() + shift, count, weight.data() + shift,
                            remainder.data() + shift),
                Status::kOk);
      ASSERT_EQ(weight, expected_weight);
      ASSERT_EQ(remainder, expected_remainder);
      const float untouched = 12345.0f;
      std::vector<float> joined(kMost + 8, untouched);
      ASSERT_EQ(
          JoinMaster(weight.data() + shift, remainder.data() + shift, count, joined.data() + shift),
          Status::kOk);
      ASSERT_EQ(std::memcmp(joined.data() + shift, master.data() + shift, count * sizeof(float)),
                0);
      ASSERT_EQ(std::count(joined.begin(), joined.begin() + shift, untouched), shift);
      ASSERT_EQ(std::count(joined.begin() + shift + count, joined.end(), untouched),
                joined.size() - shift - count);
    }
  });
}

TEST(SplitMaster, BadBuffers_RefusedBeforeWriting) {
  std::vector<float> master(8, 1.0f);
  std::vector<BFloat16> weight(8, BFloat16{7});
  std::vector<int16_t> remainder(8, 7);
  EXPECT_EQ(SplitMaster(nullptr, 8, weight.data(), remainder.data()), Status::kNullPointer);
  EXPECT_EQ(SplitMaster(master.data(), 8, weight.data(), nullptr), Status::kNullPointer);
  auto* odd = reinterpret_cast<int16_t*>(reinterpret_cast<uintptr_t>(remainder.data()) + 1);
  EXPECT_EQ(SplitMaster(master.data(), 7, weight.data(), odd), Status::kMisaligned);
  auto* inside = reinterpret_cast<BFloat16*>(master.data() + 7);
  EXPECT_EQ(SplitMaster(master.data(), 8, inside, remainder.data()), Status::kOverlap);
  EXPECT_EQ(SplitMaster(master.data(), SIZE_MAX / 2, weight.data(), remainder.data()),
            Status::kSizeOverflow);
  EXPECT_EQ(SplitMaster(nullptr, 0, nullptr, nullptr), Status::kOk);
  EXPECT_EQ(JoinMaster(weight.data(), remainder.data(), 8, nullptr), Status::kNullPointer);
  EXPECT_EQ(weight, std::vector<BFloat16>(8, BFloat16{7}));
  EXPECT_EQ(remainder, std::vector<int16_t>(8, 7));
}

}  // namespace
}  // namespace geminid::kernels
