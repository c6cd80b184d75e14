#include "kernels/model/attention/merge_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace geminid::kernels {
namespace {

constexpr MergeShape kShape = {.tokens = 3, .heads = 2, .head_dim = 5};
constexpr size_t kRows = 6, kElements = 30;

TEST(MergeAttention, OfTwoSetsOfKeys_IsTheMeanOverBothByTheirSums) {
  std::vector<float> out(kElements), other(kElements), lse(kRows), other_lse(kRows);
  for (size_t i = 0; i < kElements; ++i) {
    out[i] = static_cast<float>(i) / 8;
    other[i] = -static_cast<float>(i * i) / 64;
  }
  // One of the sums is much larger, or both are equal.
  for (size_t row = 0; row < kRows; ++row) {
    lse[row] = static_cast<float>(row) * 4 - 9;
    other_lse[row] = row == 2 ? lse[row] : static_cast<float>(row) - 2;
  }
  const std::vector<float> before = out, lse_before = lse;
  ASSERT_EQ(MergeAttention(kShape, other.data(), other_lse.data(), out.data(), lse.data()),
            Status::kOk);
  for (size_t token = 0; token < kShape.tokens; ++token) {
    for (size_t head = 0; head < kShape.heads; ++head) {
      const size_t row = head * kShape.tokens + token;
      const double a = std::exp(double{lse_before[row]}), b = std::exp(double{other_lse[row]});
      EXPECT_NEAR(lse[row], std::log(a + b), 1e-6) << row;
      for (size_t i = 0; i < kShape.head_dim; ++i) {
        const size_t at = (token * kShape.heads + head) * kShape.head_dim + i;
        EXPECT_NEAR(out[at], (a * before[at] + b * other[at]) / (a + b), 4e-6) << at;
      }
    }
  }
}

// Exponentials of the sums themselves would overflow.
TEST(MergeAttention, OfLargeScores_IsFinite) {
  std::vector<float> out = {1, 2}, lse = {3e4F};
  const std::vector<float> other = {3, 4}, other_lse = {3e4F};
  ASSERT_EQ(MergeAttention({.tokens = 1, .heads = 1, .head_dim = 2}, other.data(), other_lse.data(),
                           out.data(), lse.data()),
            Status::kOk);
  EXPECT_EQ(out, (std::vector<float>{2, 3}));
  EXPECT_NEAR(lse[0], 3e4 + std::log(2.0), 2e-3);
}

TEST(MergeAttention, ArgumentsThatDoNotFit_AreRefused) {
  std::vector<float> out(kElements), other(kElements), lse(kRows), other_lse(kRows);
  EXPECT_EQ(MergeAttention(kShape, out.data(), other_lse.data(), out.data(), lse.data()),
            Status::kOverlap);
  EXPECT_EQ(MergeAttention(kShape, nullptr, other_lse.data(), out.data(), lse.data()),
            Status::kNullPointer);
  EXPECT_EQ(
      MergeAttention({SIZE_MAX, 2, 1}, other.data(), other_lse.data(), out.data(), lse.data()),
      Status::kSizeOverflow);
  EXPECT_EQ(MergeAttention({0, 2, 1}, nullptr, nullptr, nullptr, nullptr), Status::kOk);
}

}  // namespace
}  // namespace geminid::kernels
