#include "collectives/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/collectives/elements.h"
#include "tests/kernels/for_each_target.h"

namespace geminid::collectives {
namespace {

constexpr DType kAllTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64,
                               DType::kInt32,   DType::kInt64,    DType::kUint8};

// Reduces with every instruction set, whose bits must be equal.
std::vector<std::byte> Reduce(const std::vector<std::vector<std::byte>>& inputs, DType dtype,
                              ReduceOp op, double scale) {
  std::vector<const std::byte*> pointers;
  for (const auto& input : inputs) pointers.push_back(input.data());
  std::vector<std::byte> out(inputs[0].size());
  const auto reduce = [&](std::byte* to) {
    ReduceInOrder(pointers, to, out.size() / SizeOf(dtype), dtype, op, scale);
  };
  reduce(out.data());
  kernels::ForEachTarget([&] {
    std::vector<std::byte> again(out.size());
    reduce(again.data());
    EXPECT_EQ(again, out);
  });
  return out;
}

std::vector<std::byte> Halves(const std::vector<uint16_t>& bits) {
  std::vector<std::byte> bytes(bits.size() * 2);
  std::memcpy(bytes.data(), bits.data(), bytes.size());
  return bytes;
}

TEST(ReduceInOrder, RandomInputsOfEveryTypeAndLength_EqualOneByOne) {
  for (const DType dtype : kAllTypes) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}) {
      for (const size_t count : {0u, 1u, 3u, 15u, 16u, 17u, 63u, 64u, 65u, 255u, 1000u}) {
        for (size_t ranks = 1; ranks <= 5; ++ranks) {
          std::vector<std::vector<std::byte>> inputs;
          for (size_t r = 0; r < ranks; ++r) {
            inputs.push_back(RandomElements(dtype, count, 97 * r + count));
          }
          const double scale = op == ReduceOp::kSum && IsFloating(dtype) ? 1.0 / 3 : 1;
          // Sums of uint8 wrap, which the double-based reference does not.
          if (dtype == DType::kUint8 && op == ReduceOp::kSum && ranks > 4) continue;
          EXPECT_EQ(Reduce(inputs, dtype, op, scale), ReduceOneByOne(inputs, dtype, op, scale))
              << Name(dtype) << " " << Name(op) << " count " << count << " ranks " << ranks;
        }
      }
    }
  }
}

TEST(ReduceInOrder, EveryFloat16_SurvivesUnchanged) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  const auto out = Reduce({Halves(all)}, DType::kFloat16, ReduceOp::kSum, 1.0);
  for (size_t i = 0; i < all.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, out.data() + 2 * i, 2);
    if (std::isnan(DecodeHalf(all[i], kFloat16ExponentBits))) {
      EXPECT_TRUE(std::isnan(DecodeHalf(bits, kFloat16ExponentBits))) << i;
    } else {
      EXPECT_EQ(bits, all[i]);
    }
  }
}

TEST(ReduceInOrder, EveryBFloat16_SurvivesUnchanged) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  const auto out = Reduce({Halves(all)}, DType::kBFloat16, ReduceOp::kSum, 1.0);
  for (size_t i = 0; i < all.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, out.data() + 2 * i, 2);
    if (std::isnan(DecodeHalf(all[i], kBFloat16ExponentBits))) {
      EXPECT_TRUE(std::isnan(DecodeHalf(bits, kBFloat16ExponentBits))) << i;
    } else {
      EXPECT_EQ(bits, all[i]);
    }
  }
}

// Scaling by an arbitrary fp32 gives every kind of rounding: ties, subnormals, overflow.
void CheckRounding(DType dtype, int exponent_bits) {
  std::mt19937 random(7);
  std::vector<uint16_t> inputs(4096);
  for (int trial = 0; trial < 60; ++trial) {
    const float scale = trial % 3 == 0
                            ? std::ldexp(1.0f, -(trial / 3))
                            : std::ldexp(1.0f + static_cast<float>(random() % 4096) / 4096,
                                         static_cast<int>(random() % 24) - 12);
    for (auto& bits : inputs) {
      do {
        bits = static_cast<uint16_t>(random());
      } while (!std::isfinite(DecodeHalf(bits, exponent_bits)));
    }
    const auto out = Reduce({Halves(inputs)}, dtype, ReduceOp::kSum, scale);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const float product = static_cast<float>(DecodeHalf(inputs[i], exponent_bits)) * scale;
      uint16_t bits = 0;
      std::memcpy(&bits, out.data() + 2 * i, 2);
      ASSERT_EQ(bits, EncodeHalf(product, exponent_bits)) << product;
    }
  }
}

TEST(ReduceInOrder, Float16Result_IsNearestEven) {
  CheckRounding(DType::kFloat16, kFloat16ExponentBits);
}

TEST(ReduceInOrder, BFloat16Result_IsNearestEven) {
  CheckRounding(DType::kBFloat16, kBFloat16ExponentBits);
}

TEST(ReduceInOrder, MeanOfFourTimes30000InFloat16_Is30000) {
  const uint16_t bits = EncodeHalf(30000, kFloat16ExponentBits);
  const std::vector<std::vector<std::byte>> inputs(4, Halves(std::vector<uint16_t>(100, bits)));
  EXPECT_EQ(Reduce(inputs, DType::kFloat16, ReduceOp::kSum, 0.25), inputs[0]);
}

TEST(ReduceInOrder, IntegerSums_Wrap) {
  const int32_t most = std::numeric_limits<int32_t>::max();
  std::vector<std::byte> left(4), right(4);
  std::memcpy(left.data(), &most, 4);
  const int32_t one = 1;
  std::memcpy(right.data(), &one, 4);
  int32_t sum = 0;
  std::memcpy(&sum, Reduce({left, right}, DType::kInt32, ReduceOp::kSum, 1).data(), 4);
  EXPECT_EQ(sum, std::numeric_limits<int32_t>::min());
}

TEST(ReduceInOrder, NanOnAnySide_WinsMinAndMax) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    for (int position = 0; position < 3; ++position) {
      std::vector<std::vector<std::byte>> inputs;
      for (int r = 0; r < 3; ++r) {
        const float value = r == position ? nan : static_cast<float>(r);
        inputs.emplace_back(4);
        std::memcpy(inputs.back().data(), &value, 4);
      }
      EXPECT_TRUE(std::isnan(ValueOf(Reduce(inputs, DType::kFloat32, op, 1), 0, DType::kFloat32)));
    }
  }
}

TEST(ReduceInOrder, OutIsAnInputAndUnaligned_GivesTheSame) {
  const auto a = RandomElements(DType::kBFloat16, 333, 1);
  const auto b = RandomElements(DType::kBFloat16, 333, 2);
  const auto expected = Reduce({a, b}, DType::kBFloat16, ReduceOp::kSum, 1);
  for (size_t shift = 1; shift < 4; ++shift) {
    std::vector<std::byte> memory(b.size() + shift);
    std::memcpy(memory.data() + shift, b.data(), b.size());
    const std::byte* inputs[] = {a.data(), memory.data() + shift};
    ReduceInOrder(inputs, memory.data() + shift, 333, DType::kBFloat16, ReduceOp::kSum, 1);
    EXPECT_EQ(std::memcmp(memory.data() + shift, expected.data(), expected.size()), 0) << shift;
  }
}

// Widening is exact, so narrowing returns every value. A NaN stays a NaN.
TEST(WidenAndNarrow, EveryValueOf16Bits_ComesBack) {
  std::vector<uint16_t> all(1 << 16);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  const std::vector<std::byte> bytes = Halves(all);
  for (const auto& [dtype, exponent_bits] : {std::pair{DType::kBFloat16, kBFloat16ExponentBits},
                                             {DType::kFloat16, kFloat16ExponentBits}}) {
    for (const size_t count : {all.size(), all.size() - 3, size_t{1}}) {
      std::vector<float> wide(count + 1, 7.0f);
      std::vector<std::byte> back(2 * (count + 1), std::byte{7});
      WidenToFloat(bytes.data(), wide.data(), count, dtype);
      NarrowFromFloat(wide.data(), back.data(), count, dtype);
      EXPECT_EQ(wide[count], 7.0f);
      EXPECT_EQ(back[2 * count], std::byte{7});
      for (size_t i = 0; i < count; ++i) {
        const double value = DecodeHalf(all[i], exponent_bits);
        uint16_t half = 0;
        std::memcpy(&half, &back[2 * i], 2);
        if (std::isnan(value)) {
          EXPECT_TRUE(std::isnan(wide[i]) && std::isnan(DecodeHalf(half, exponent_bits)));
        } else {
          EXPECT_EQ(static_cast<double>(wide[i]), value);
          EXPECT_EQ(half, all[i]);
        }
      }
    }
  }
}

// Random floats lie between two values, or beyond the largest.
TEST(Narrow, RandomFloats_RoundToTheNearestAndToEven) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 30000);
  std::vector<float> wide(1001);
  for (float& value : wide) value = normal(random);
  for (const auto& [dtype, exponent_bits] : {std::pair{DType::kBFloat16, kBFloat16ExponentBits},
                                             {DType::kFloat16, kFloat16ExponentBits}}) {
    std::vector<std::byte> narrow(2 * wide.size());
    NarrowFromFloat(wide.data(), narrow.data(), wide.size(), dtype);
    for (size_t i = 0; i < wide.size(); ++i) {
      uint16_t half = 0;
      std::memcpy(&half, &narrow[2 * i], 2);
      EXPECT_EQ(half, EncodeHalf(static_cast<double>(wide[i]), exponent_bits)) << wide[i];
    }
  }
}

}  // namespace
}  // namespace geminid::collectives
