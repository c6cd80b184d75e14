// Kernels of rows whose columns are split. Parts of 16 columns add their sums in another order than
// the vectors of a whole row. Whole numbers show that the parts have the sums of the whole.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/model/cross_entropy/cross_entropy.h"
#include "kernels/model/cross_entropy/cross_entropy_part.h"
#include "kernels/model/normalisation/layer_norm.h"
#include "kernels/model/normalisation/norm_part.h"
#include "tests/kernels/model/model_kernels.h"

namespace geminid::kernels {
namespace {

constexpr size_t kRows = 3, kCols = 40, kLeft = 17;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Columns [begin, begin + count) of a matrix of kCols columns.
std::vector<float> Columns(const std::vector<float>& matrix, size_t begin, size_t count) {
  std::vector<float> out;
  for (size_t r = 0; r < matrix.size() / kCols; ++r) {
    for (size_t c = 0; c < count; ++c) out.push_back(matrix[r * kCols + begin + c]);
  }
  return out;
}

TEST(CrossEntropyPart, TwoParts_GiveTheGradientOfTheWhole) {
  std::vector<float> logits(kRows * kCols);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 3) * 256;
  const std::vector<int32_t> targets = {3, kIgnoredTarget, 30};
  std::vector<float> whole(logits.size()), losses(kRows);
  CrossEntropyResult result;
  ASSERT_EQ(CrossEntropy<float>({kRows, kCols, kCols}, logits.data(), targets.data(), 0.5F,
                                whole.data(), losses.data(), &result),
            Status::kOk);
  ForEachTarget([&] {
    std::vector<float> max(kRows, -kInfinity), sums(kRows), at_target(kRows);
    const auto each = [&](const auto& body) {
      for (const size_t begin : {size_t{0}, kLeft}) {
        const size_t count = begin == 0 ? kLeft : kCols - kLeft;
        std::vector<float> cut = Columns(logits, begin, count);
        body(CrossEntropyPart{kRows, count, begin, count}, cut, Columns(whole, begin, count));
      }
    };
    each([&](const CrossEntropyPart& part, const std::vector<float>& cut, const auto&) {
      std::vector<float> own(kRows);
      ASSERT_EQ(CrossEntropyPartMax(part, cut.data(), own.data()), Status::kOk);
      for (size_t r = 0; r < kRows; ++r) max[r] = std::max(max[r], own[r]);
    });
    each([&](const CrossEntropyPart& part, const std::vector<float>& cut, const auto&) {
      std::vector<float> own(kRows), own_target(kRows);
      ASSERT_EQ(CrossEntropyPartSums(part, cut.data(), targets.data(), max.data(), own.data(),
                                     own_target.data()),
                Status::kOk);
      for (size_t r = 0; r < kRows; ++r) sums[r] += own[r];
      for (size_t r = 0; r < kRows; ++r) at_target[r] += own_target[r];
    });
    each([&](const CrossEntropyPart& part, std::vector<float>& cut, const auto& want) {
      ASSERT_EQ(CrossEntropyPartGradient(part, cut.data(), targets.data(), max.data(), sums.data(),
                                         0.5F, cut.data()),
                Status::kOk);
      EXPECT_EQ(cut, want);
    });
    for (const size_t r : {0, 2}) {
      EXPECT_EQ(static_cast<float>(std::log(double{sums[r]}) + max[r] - at_target[r]), losses[r]);
    }
  });
}

TEST(CrossEntropyPart, NoColumns_GiveTheNeutralElements) {
  const CrossEntropyPart none = {.tokens = 1, .columns = 0, .first_column = 4, .row_stride = 2};
  const std::vector<float> logits = {1e30F, 1e30F}, max = {5};
  const std::vector<int32_t> targets = {3};
  std::vector<float> own = {0}, sum = {1}, at_target = {1}, gradient = {1, 1};
  ASSERT_EQ(CrossEntropyPartMax(none, logits.data(), own.data()), Status::kOk);
  EXPECT_EQ(own[0], -kInfinity);
  ASSERT_EQ(CrossEntropyPartSums(none, logits.data(), targets.data(), max.data(), sum.data(),
                                 at_target.data()),
            Status::kOk);
  EXPECT_EQ(sum[0], 0);
  EXPECT_EQ(at_target[0], 0);
  ASSERT_EQ(CrossEntropyPartGradient(none, logits.data(), targets.data(), max.data(), max.data(),
                                     1.0F, gradient.data()),
            Status::kOk);
  EXPECT_EQ(gradient, (std::vector<float>{0, 0}));
}

TEST(NormPart, TwoParts_GiveTheSumsOfTheWhole) {
  std::vector<float> x(kRows * kCols);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7 % 11) - 5;
  std::vector<float> want_sum(kRows), want_squares(kRows);
  const std::vector<float> mean = {1, -2, 3};
  for (size_t i = 0; i < x.size(); ++i) {
    const float centred = x[i] - mean[i / kCols];
    want_sum[i / kCols] += x[i];
    want_squares[i / kCols] += centred * centred;
  }
  ForEachTarget([&] {
    std::vector<float> sum(kRows), squares(kRows), own(kRows);
    for (const size_t begin : {size_t{0}, kLeft}) {
      const size_t count = begin == 0 ? kLeft : kCols - kLeft;
      const std::vector<float> cut = Columns(x, begin, count);
      ASSERT_EQ(NormPartSum({kRows, count}, cut.data(), own.data()), Status::kOk);
      for (size_t r = 0; r < kRows; ++r) sum[r] += own[r];
      ASSERT_EQ(NormPartSquares({kRows, count}, cut.data(), mean.data(), own.data()), Status::kOk);
      for (size_t r = 0; r < kRows; ++r) squares[r] += own[r];
    }
    EXPECT_EQ(sum, want_sum);
    EXPECT_EQ(squares, want_squares);
  });
}

TEST(NormPart, SumsOfWholeRows_BecomeMeansAndReciprocalDeviations) {
  std::vector<float> sums = {8, -6, 0};
  ASSERT_EQ(NormPartMeans(sums.size(), 4, sums.data()), Status::kOk);
  EXPECT_EQ(sums, (std::vector<float>{2, -1.5F, 0}));
  std::vector<float> squares = {3.75F, 0, 99.75F};
  ASSERT_EQ(NormPartInverseRoots(squares.size(), 0.25F, squares.data()), Status::kOk);
  EXPECT_EQ(squares, (std::vector<float>{0.5F, 2, 0.1F}));
}

TEST(PartKernels, ArgumentsThatDoNotFit_AreRefused) {
  std::vector<float> a(4), b(4);
  const std::vector<int32_t> targets(2);
  EXPECT_EQ(CrossEntropyPartMax({2, 2, 0, 1}, a.data(), b.data()), Status::kInvalidShape);
  EXPECT_EQ(CrossEntropyPartMax({2, 2, 0, 2}, a.data(), a.data()), Status::kOverlap);
  EXPECT_EQ(CrossEntropyPartGradient({1, 2, 0, 2}, a.data(), targets.data(), b.data(), b.data(),
                                     kInfinity, a.data()),
            Status::kInvalidParameter);
  EXPECT_EQ(NormPartSum({2, 0}, a.data(), b.data()), Status::kInvalidShape);
  EXPECT_EQ(NormPartSquares({2, 2}, nullptr, nullptr, b.data()), Status::kNullPointer);
  EXPECT_EQ(NormPartBackward({1, 2}, {a.data(), a.data(), a.data(), nullptr, a.data()}, a.data(),
                             nullptr, {b.data(), b.data() + 2, nullptr}, nullptr, 0),
            Status::kNullPointer);
  EXPECT_EQ(NormPartMeans(2, 0, a.data()), Status::kInvalidShape);
  EXPECT_EQ(NormPartMeans(2, 1, nullptr), Status::kNullPointer);
  EXPECT_EQ(NormPartInverseRoots(2, -1.0F, a.data()), Status::kInvalidParameter);
  EXPECT_EQ(NormPartInverseRoots(2, kInfinity, a.data()), Status::kInvalidParameter);
}

}  // namespace
}  // namespace geminid::kernels
