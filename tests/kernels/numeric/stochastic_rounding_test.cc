#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/numeric/stochastic_rounding/stochastic_rounding_rule.h"

namespace geminid::kernels {
namespace {

// The bound is five sigma of a binomial distribution.
TEST(StochasticRounding, ManyElementsStepsAndTensors_MeanIsTheValue) {
  for (const double fraction : {0.01, 0.25, 0.5, 0.9}) {
    for (const bool upper_half : {false, true}) {
      const float value = static_cast<float>(1.0 + fraction / 128);
      int ups = 0, rounds = 0;
      for (uint64_t step = 1; step <= 10; ++step) {
        for (uint64_t tensor = 0; tensor < 4; ++tensor) {
          const uint32_t key = RoundingKey(RoundingSeed(tensor, step), 0);
          for (uint32_t i = 0; i < 1000; ++i, ++rounds) {
            const uint32_t bits = RoundingBits(key, i);
            const uint32_t half = upper_half ? bits >> 16 : bits & 0xFFFFu;
            ups += RoundStochastically(value, half).bits - 0x3F80;
          }
        }
      }
      EXPECT_NEAR(ups, rounds * fraction, 5 * std::sqrt(rounds * fraction * (1 - fraction)));
    }
  }
}

TEST(StochasticRounding, AnotherTensorStepOrIndex_OtherBits) {
  const auto bits = [](uint64_t tensor, uint64_t step, uint64_t index) {
    return RoundingBits(RoundingKey(RoundingSeed(tensor, step), index >> 32),
                        static_cast<uint32_t>(index));
  };
  const uint32_t one = bits(5, 7, 11);
  EXPECT_EQ(bits(5, 7, 11), one);
  EXPECT_NE(bits(6, 7, 11), one);
  EXPECT_NE(bits(5, 8, 11), one);
  EXPECT_NE(bits(7, 5, 11), one);  // tensor and step are not interchangeable
  EXPECT_NE(bits(5, 7, 12), one);
  EXPECT_NE(bits(5, 7, (uint64_t{1} << 32) + 11), one);
}

TEST(StochasticRounding, ExactAndSpecialValues_Stay) {
  for (const uint32_t random : {0u, 1u, 0xFFFFu}) {
    EXPECT_EQ(RoundStochastically(1.0F, random).bits, 0x3F80);
    EXPECT_EQ(RoundStochastically(-0.0F, random).bits, 0x8000);
    EXPECT_EQ(RoundStochastically(INFINITY, random).bits, 0x7F80);
    EXPECT_EQ(RoundStochastically(std::bit_cast<float>(0x7FC00000u), random).bits, 0x7FC0);
  }
}

}  // namespace
}  // namespace geminid::kernels
