// Uses synthetic gradients with known mean and covariance, so the true noise scale is known.
#include "training/goodput/noise_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/counter_random.h"

namespace geminid::trainer {
namespace {

// The true mean gradient has squared length 16, and the diagonal covariance has trace 480. So the
// noise scale is 30 sequences.
constexpr size_t kElements = 64;
constexpr double kSquare = 16;
constexpr double kVariance = 480;

double TrueMean(size_t element) {
  return (element % 2 == 0 ? 1 : -1) * std::sqrt(kSquare / kElements);
}

// Elements of the second half vary three times as much as those of the first.
double TrueVariance(size_t element) {
  return (element < kElements / 2 ? 0.5 : 1.5) * kVariance / kElements;
}

// Draws the gradients of step after step.
class Gradients {
 public:
  explicit Gradients(uint64_t seed) : seed_(seed) {}

  // `scale`: the factor of the loss.
  NoiseSample Draw(uint64_t gradients, double sequences, double scale = 1) {
    NoiseSample sample = {.gradients = gradients, .sequences = sequences};
    std::vector<double> mean(kElements);
    for (uint64_t g = 0; g < gradients; ++g) {
      for (size_t i = 0; i < kElements; ++i) {
        const double value =
            scale * (TrueMean(i) + std::sqrt(TrueVariance(i) / sequences) * Normal());
        sample.mean_square += value * value / static_cast<double>(gradients);
        mean[i] += value / static_cast<double>(gradients);
      }
    }
    for (const double value : mean) sample.square_of_mean += value * value;
    return sample;
  }

 private:
  double Normal() { return base::RandomNormals(seed_, drawn_++).values[0]; }

  const uint64_t seed_;
  uint64_t drawn_ = 0;
};

TEST(NoiseMeter, OfKnownGradients_FindsTheirMeanAndTheirVariance) {
  NoiseMeter meter(/*decay=*/1);
  Gradients gradients(1);
  for (int step = 0; step < 20'000; ++step) ASSERT_TRUE(meter.Add(gradients.Draw(4, 2)));
  EXPECT_NEAR(meter.gradient_square(), kSquare, 0.02 * kSquare);
  EXPECT_NEAR(meter.gradient_variance(), kVariance, 0.01 * kVariance);
  EXPECT_NEAR(meter.Estimate()->sequences, kVariance / kSquare, 0.03 * kVariance / kSquare);
}

// The shape of the batch must not matter: ranks alone, micro-batches alone, or both.
TEST(NoiseMeter, OfAnyShapeOfBatch_FindsTheSame) {
  for (const auto& [gradients, sequences] :
       std::vector<std::pair<uint64_t, double>>{{2, 1}, {2, 16}, {16, 1}, {3, 5}}) {
    NoiseMeter meter(1);
    Gradients drawn(gradients * 100 + static_cast<uint64_t>(sequences));
    for (int step = 0; step < 10'000; ++step) meter.Add(drawn.Draw(gradients, sequences));
    EXPECT_NEAR(meter.Estimate()->sequences, 30, 1.8) << gradients << " of " << sequences;
  }
}

TEST(NoiseMeter, InManyRuns_ItsRangeHasTheTruthInNineteenOfTwenty) {
  int inside = 0;
  for (uint64_t run = 0; run < 400; ++run) {
    NoiseMeter meter(1);
    Gradients gradients(1000 + run);
    for (int step = 0; step < 400; ++step) meter.Add(gradients.Draw(4, 4));
    const std::optional<NoiseScale> scale = meter.Estimate();
    ASSERT_TRUE(scale.has_value());
    inside += scale->low <= 30 && (!scale->high || *scale->high >= 30) ? 1 : 0;
  }
  // The range does not include the variance's own error, which is small beside that of |G|^2.
  EXPECT_GE(inside, 372);
}

TEST(NoiseMeter, WhileTheGradientIsLostInItsNoise_SaysNothing) {
  // |G|^2 is 16 and the variance of one sequence 480: one step's estimate is often below 0.
  NoiseMeter meter;
  Gradients gradients(7);
  int negative = 0;
  for (int step = 0; step < 200; ++step) {
    NoiseMeter one;
    one.Add(gradients.Draw(2, 1));
    negative += one.gradient_square() < 0 ? 1 : 0;
  }
  EXPECT_GT(negative, 40);
  NoiseMeter steps;
  for (uint64_t step = 0; step < NoiseMeter::kLeastSamples; ++step) {
    EXPECT_EQ(steps.Estimate(), std::nullopt);
    steps.Add({.gradients = 2, .sequences = 1, .mean_square = 500, .square_of_mean = 240});
  }
  EXPECT_LT(steps.gradient_square(), 0);
  EXPECT_EQ(steps.Estimate(), std::nullopt);
}

// |G|^2 is 1 with an error of about 0.8: one error below is still above zero, two errors are not.
TEST(NoiseMeter, WithAGradientThatMayBeZero_HasNoUpperEnd) {
  NoiseMeter meter(1);
  for (int step = 0; step < 16; ++step) {
    const double square = step % 2 == 0 ? 4.1 : -2.1;
    meter.Add(
        {.gradients = 2, .sequences = 1, .mean_square = 20, .square_of_mean = 10 + square / 2});
  }
  const std::optional<NoiseScale> scale = meter.Estimate();
  ASSERT_TRUE(scale.has_value());
  EXPECT_NEAR(meter.gradient_square(), 1, 1e-9);
  EXPECT_EQ(scale->high, std::nullopt);
  EXPECT_GT(scale->low, 0);
  EXPECT_LT(scale->low, scale->sequences);
}

TEST(NoiseMeter, OfOneGradient_TakesNothing) {
  NoiseMeter meter;
  EXPECT_FALSE(meter.Add({.gradients = 1, .sequences = 8, .mean_square = 2, .square_of_mean = 2}));
  EXPECT_FALSE(meter.Add({.gradients = 4, .sequences = 0, .mean_square = 2, .square_of_mean = 1}));
  EXPECT_EQ(meter.samples(), 0u);
  EXPECT_EQ(meter.gradient_square(), 0);
  EXPECT_EQ(meter.Estimate(), std::nullopt);
}

TEST(NoiseMeter, OfAStepThatOverflowed_TakesNothing) {
  NoiseMeter meter;
  Gradients gradients(3);
  for (int step = 0; step < 100; ++step) meter.Add(gradients.Draw(4, 8));
  const double before = meter.gradient_square();
  for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_FALSE(
        meter.Add({.gradients = 4, .sequences = 8, .mean_square = bad, .square_of_mean = 1}));
    EXPECT_FALSE(
        meter.Add({.gradients = 4, .sequences = 8, .mean_square = 1, .square_of_mean = bad}));
  }
  EXPECT_EQ(meter.samples(), 100u);
  EXPECT_EQ(meter.gradient_square(), before);
}

TEST(NoiseMeter, OfEqualGradients_FindsNoNoise) {
  NoiseMeter meter;
  for (int step = 0; step < 10; ++step) {
    // After rounding to bf16, the mean may be slightly longer than the gradients.
    meter.Add({.gradients = 4, .sequences = 2, .mean_square = 9, .square_of_mean = 9.01});
  }
  ASSERT_TRUE(meter.Estimate().has_value());
  EXPECT_EQ(meter.Estimate()->sequences, 0);
}

// A common factor of all gradients cancels, such as a constant loss scale that was left in.
TEST(NoiseMeter, OfAScaledLoss_FindsTheSameScale) {
  NoiseMeter plain;
  NoiseMeter scaled;
  Gradients of_plain(5);
  Gradients of_scaled(5);
  for (int step = 0; step < 100; ++step) {
    plain.Add(of_plain.Draw(4, 8));
    scaled.Add(of_scaled.Draw(4, 8, 1024));
  }
  EXPECT_NEAR(scaled.Estimate()->sequences, plain.Estimate()->sequences, 1e-6);
}

TEST(NoiseMeter, WhenTheNoiseChanges_FollowsIt) {
  NoiseMeter meter(0.99);
  for (int step = 0; step < 1000; ++step) {
    meter.Add({.gradients = 2, .sequences = 1, .mean_square = 3, .square_of_mean = 2});
  }
  EXPECT_NEAR(meter.Estimate()->sequences, 2, 1e-9);
  for (int step = 0; step < 1000; ++step) {
    meter.Add({.gradients = 2, .sequences = 1, .mean_square = 11, .square_of_mean = 6});
  }
  EXPECT_NEAR(meter.Estimate()->sequences, 10, 0.01);
}

}  // namespace
}  // namespace geminid::trainer
