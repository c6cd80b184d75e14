#include "kernels/model/cross_entropy/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/model/model_kernels.h"

namespace geminid::kernels {
namespace {

struct Reference {
  CrossEntropyShape s;
  std::vector<int32_t> targets;

  double RowLoss(const Doubles& logits, size_t t, Doubles* p) const {
    if (targets[t] == kIgnoredTarget) return 0;
    const double* row = logits.data() + t * s.row_stride;
    const double max = *std::max_element(row, row + s.vocabulary);
    double sum = 0;
    for (size_t i = 0; i < s.vocabulary; ++i) sum += std::exp(row[i] - max);
    if (p != nullptr) {
      p->resize(s.vocabulary);
      for (size_t i = 0; i < s.vocabulary; ++i) (*p)[i] = std::exp(row[i] - max) / sum;
    }
    return max + std::log(sum) - row[targets[t]];
  }

  double Loss(const Doubles& logits) const {
    double sum = 0;
    for (size_t t = 0; t < s.tokens; ++t) sum += RowLoss(logits, t, nullptr);
    return sum;
  }

  Doubles Gradient(const Doubles& logits, double scale) const {
    Doubles out(s.tokens * s.row_stride);
    for (size_t t = 0; t < s.tokens; ++t) {
      if (targets[t] == kIgnoredTarget) continue;
      Doubles p;
      RowLoss(logits, t, &p);
      p[static_cast<size_t>(targets[t])] -= 1.0;
      for (size_t i = 0; i < s.vocabulary; ++i) out[t * s.row_stride + i] = scale * p[i];
    }
    return out;
  }
};

template <typename T>
class CrossEntropyOf : public ::testing::Test {};
TYPED_TEST_SUITE(CrossEntropyOf, ElementTypes);

TYPED_TEST(CrossEntropyOf, LossAndGradient_PaddedRows_MatchFloat64) {
  std::mt19937 random(61);
  for (const size_t vocabulary : {1, 3, 16, 37, 5000}) {
    SCOPED_TRACE(vocabulary);
    const CrossEntropyShape shape = {
        .tokens = 6, .vocabulary = vocabulary, .row_stride = vocabulary + 5};
    const auto last = static_cast<int32_t>(vocabulary - 1);
    const Reference reference = {shape, {0, last, -1, last / 2, -1, last / 3}};
    const auto logits = RandomTensor<TypeParam>(random, 6 * shape.row_stride, 4.0, 20.0);
    const Doubles want = reference.Gradient(ToDoubles(logits), 0.25);
    ForEachTarget([&] {
      auto gradient = FromDoubles<TypeParam>(ToDoubles(logits), 1);
      GuardedArray<float> losses(6, 0);
      CrossEntropyResult result;
      ASSERT_EQ(CrossEntropy(shape, gradient.data(), reference.targets.data(), 0.25F,
                             gradient.data(), losses.data(), &result),
                Status::kOk);
      EXPECT_EQ(result.counted, 4u);
      EXPECT_NEAR(result.loss_sum, reference.Loss(ToDoubles(logits)), 4e-6);
      for (size_t t = 0; t < 6; ++t) {
        EXPECT_NEAR(losses[t], reference.RowLoss(ToDoubles(logits), t, nullptr), 2e-6);
      }
      ExpectClose(gradient, want, 1e-6, 0.25);
    });
  }
}

TYPED_TEST(CrossEntropyOf, Gradient_FiniteDifferences_Agree) {
  std::mt19937 random(62);
  const CrossEntropyShape shape = {.tokens = 3, .vocabulary = 20, .row_stride = 20};
  const Reference reference = {shape, {3, -1, 19}};
  const auto logits = RandomTensor<TypeParam>(random, 60, 2.0);
  GuardedArray<TypeParam> gradient(60, 0);
  CrossEntropyResult result;
  ASSERT_EQ(CrossEntropy<TypeParam>(shape, logits.data(), reference.targets.data(), 1.0F,
                                    gradient.data(), nullptr, &result),
            Status::kOk);
  ExpectClose(
      gradient,
      NumericGradient([&](const Doubles& x) { return reference.Loss(x); }, ToDoubles(logits)),
      1e-6);
}

TYPED_TEST(CrossEntropyOf, Evaluation_NoGradient_SameLoss) {
  std::mt19937 random(63);
  const CrossEntropyShape shape = {.tokens = 2, .vocabulary = 50, .row_stride = 50};
  const std::vector<int32_t> targets = {7, 8};
  auto logits = RandomTensor<TypeParam>(random, 100);
  CrossEntropyResult evaluated;
  CrossEntropyResult trained;
  ASSERT_EQ(CrossEntropy<TypeParam>(shape, logits.data(), targets.data(), 1.0F, nullptr, nullptr,
                                    &evaluated),
            Status::kOk);
  ASSERT_EQ(CrossEntropy<TypeParam>(shape, logits.data(), targets.data(), 1.0F, logits.data(),
                                    nullptr, &trained),
            Status::kOk);
  EXPECT_EQ(evaluated.loss_sum, trained.loss_sum);
  EXPECT_EQ(evaluated.counted, 2u);
}

TYPED_TEST(CrossEntropyOf, FmaTargets_SameBits) {
  std::mt19937 random(64);
  const CrossEntropyShape shape = {.tokens = 2, .vocabulary = 4501, .row_stride = 4501};
  const std::vector<int32_t> targets = {7, 4000};
  const auto logits = RandomTensor<TypeParam>(random, 9002, 3.0);
  ExpectSameBitsOnFmaTargets([&] {
    GuardedArray<TypeParam> gradient(9002, 0);
    CrossEntropyResult result;
    EXPECT_EQ(CrossEntropy<TypeParam>(shape, logits.data(), targets.data(), 1.0F, gradient.data(),
                                      nullptr, &result),
              Status::kOk);
    return gradient;
  });
}

TEST(CrossEntropy, UniformLogits_LossIsLogOfVocabulary) {
  const CrossEntropyShape shape = {.tokens = 1, .vocabulary = 50257, .row_stride = 50257};
  const auto logits = FromDoubles<float>(Doubles(50257, -3.5));
  const int32_t target = 12345;
  CrossEntropyResult result;
  ASSERT_EQ(CrossEntropy<float>(shape, logits.data(), &target, 1.0F, nullptr, nullptr, &result),
            Status::kOk);
  EXPECT_NEAR(result.loss_sum, std::log(50257.0), 1e-9);
}

TEST(CrossEntropy, NaNLogit_LossIsNaN) {
  const CrossEntropyShape shape = {.tokens = 1, .vocabulary = 40, .row_stride = 40};
  auto logits = FromDoubles<float>(Doubles(40, 1.0));
  logits[17] = NAN;
  const int32_t target = 0;
  CrossEntropyResult result;
  ASSERT_EQ(CrossEntropy<float>(shape, logits.data(), &target, 1.0F, nullptr, nullptr, &result),
            Status::kOk);
  EXPECT_TRUE(std::isnan(result.loss_sum));
}

TEST(CrossEntropy, BadArguments_AreRefusedUntouched) {
  const CrossEntropyShape shape = {.tokens = 2, .vocabulary = 10, .row_stride = 10};
  auto logits = FromDoubles<float>(Doubles(20, 1.0));
  CrossEntropyResult result = {.loss_sum = 5.0, .counted = 6};
  const auto run = [&](const CrossEntropyShape& s, std::vector<int32_t> targets, float scale) {
    return CrossEntropy<float>(s, logits.data(), targets.data(), scale, logits.data(), nullptr,
                               &result);
  };
  EXPECT_EQ(run(shape, {0, 10}, 1.0F), Status::kInvalidParameter);
  EXPECT_EQ(run(shape, {-2, 0}, 1.0F), Status::kInvalidParameter);
  EXPECT_EQ(run(shape, {0, 0}, INFINITY), Status::kInvalidParameter);
  EXPECT_EQ(run({.tokens = 2, .vocabulary = 10, .row_stride = 9}, {0, 0}, 1.0F),
            Status::kInvalidShape);
  EXPECT_EQ(ToDoubles(logits), Doubles(20, 1.0));
  EXPECT_EQ(result.loss_sum, 5.0);
  EXPECT_EQ(result.counted, 6u);
}

}  // namespace
}  // namespace geminid::kernels
