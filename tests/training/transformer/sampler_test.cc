#include "training/transformer/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace geminid::trainer {
namespace {

const std::vector<float> kLogits = {0.5F, 2.0F, -1.0F, 2.0F, 1.0F};

std::vector<double> Frequencies(const TokenSampling& sampling, uint64_t draws) {
  std::vector<double> shares(kLogits.size());
  for (uint64_t i = 0; i < draws; ++i) {
    shares[static_cast<size_t>(SampleToken(sampling, i, kLogits))] +=
        1.0 / static_cast<double>(draws);
  }
  return shares;
}

TEST(CanBeChosenFrom, LogitsOfWhichOneIsTheLargest_IsTrue) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  using Logits = std::vector<float>;
  EXPECT_TRUE(CanBeChosenFrom(Logits{1, 2, -3}));
  EXPECT_TRUE(CanBeChosenFrom(Logits{-kInfinity, 2}));
  EXPECT_FALSE(CanBeChosenFrom(Logits{1, kInfinity}));
  EXPECT_FALSE(CanBeChosenFrom(Logits{1, kNaN}));
  EXPECT_FALSE(CanBeChosenFrom(Logits{-kInfinity, -kInfinity}));
}

TEST(SampleToken, WithoutTemperature_IsTheFirstOfTheLikeliest) {
  for (uint64_t i = 0; i < 20; ++i) EXPECT_EQ(SampleToken({.seed = i}, i, kLogits), 1);
  EXPECT_EQ(SampleToken({.temperature = 5, .top_k = 1}, 3, kLogits), 1);
}

TEST(SampleToken, WithATemperature_FollowsTheSoftmax) {
  constexpr uint64_t kDraws = 200'000;
  for (const double temperature : {0.5, 1.0, 3.0}) {
    for (const uint64_t top_k : {0, 2, 3, 9}) {
      const std::vector<double> shares =
          Frequencies({.temperature = temperature, .top_k = top_k, .seed = 7}, kDraws);
      // The tokens in falling order of probability: 1, 3, 4, 0, 2.
      std::vector<double> expected(kLogits.size());
      double sum = 0;
      size_t taken = 0;
      for (const size_t token : {1, 3, 4, 0, 2}) {
        if (top_k != 0 && taken++ == top_k) break;
        expected[token] = std::exp(static_cast<double>(kLogits[token]) / temperature);
        sum += expected[token];
      }
      for (size_t token = 0; token < kLogits.size(); ++token) {
        const double p = expected[token] / sum;
        EXPECT_NEAR(shares[token], p, 5 * std::sqrt(p * (1 - p) / kDraws)) << token;
      }
    }
  }
}

TEST(SampleToken, OfTheSameNumberAndSeed_IsTheSame) {
  const TokenSampling sampling = {.temperature = 1, .seed = 3};
  for (uint64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(SampleToken(sampling, i, kLogits), SampleToken(sampling, i, kLogits));
  }
  EXPECT_NE(Frequencies(sampling, 100), Frequencies({.temperature = 1, .seed = 4}, 100));
}

}  // namespace
}  // namespace geminid::trainer
