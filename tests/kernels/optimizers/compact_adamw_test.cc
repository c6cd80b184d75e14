#include "kernels/optimizers/compact_adamw/compact_adamw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "kernels/numeric/quantise/stochastic_rounding_rule.h"
#include "kernels/numeric/split_master/split_master.h"
#include "kernels/optimizers/adamw/adamw_coefficients.h"
#include "tests/kernels/for_each_target.h"
#include "tests/kernels/optimizers/compact_adamw_reference.h"
#include "tests/kernels/test_arrays.h"

namespace geminid::kernels {
namespace {

AdamWOptions TypicalOptions() {
  return {.learning_rate = 3e-4,
          .beta1 = 0.9,
          .beta2 = 0.95,
          .epsilon = 1e-8,
          .weight_decay = 0.1,
          .step = 17,
          .grad_scale = 1.0 / 1024};
}

AdamWCoefficients Coefficients(const AdamWOptions& options) {
  AdamWCoefficients k = {};
  EXPECT_EQ(DeriveAdamWCoefficients(options, &k), Status::kOk);
  return k;
}

// Every array a state can need, at `shift` elements past a cache line.
struct State {
  State(size_t count, size_t shift)
      : master(count, shift),
        weight(count, shift),
        remainder(count, shift),
        codes1(count, shift),
        codes2(count, shift),
        scales1(QuantiseScaleCount(count), shift),
        scales2(QuantiseScaleCount(count), shift),
        moment1(count, shift),
        moment2(count, shift) {}

  template <class Weights, class Moments>
  CompactState<Weights, Moments> View() {
    CompactState<Weights, Moments> view;
    if constexpr (std::is_same_v<Weights, SplitWeights>) {
      view.weights = {weight.data(), remainder.data()};
    } else {
      view.weights = {master.data()};
    }
    view.moments = MomentsOf<Moments>();
    return view;
  }
  template <class Moments>
  Moments MomentsOf() {
    if constexpr (std::is_same_v<Moments, EightBitMoments>) {
      return {codes1.data(), scales1.data(), codes2.data(), scales2.data()};
    } else {
      return {moment1.data(), moment2.data()};
    }
  }
  bool GuardsIntact() const {
    return master.GuardsIntact() && weight.GuardsIntact() && remainder.GuardsIntact() &&
           codes1.GuardsIntact() && codes2.GuardsIntact() && scales1.GuardsIntact() &&
           scales2.GuardsIntact() && moment1.GuardsIntact() && moment2.GuardsIntact();
  }
  void SplitWeightsOfMaster() {
    ASSERT_EQ(SplitMaster(master.data(), master.size(), weight.data(), remainder.data()),
              Status::kOk);
  }
  void JoinWeights() {
    ASSERT_EQ(JoinMaster(weight.data(), remainder.data(), master.size(), master.data()),
              Status::kOk);
  }

  GuardedArray<float> master;
  GuardedArray<BFloat16> weight;
  GuardedArray<int16_t> remainder;
  GuardedArray<uint8_t> codes1, codes2;
  GuardedArray<float> scales1, scales2;
  GuardedArray<BFloat16> moment1, moment2;
};

void Copy(const State& from, State* to) {
  const auto copy = [](const auto& a, auto& b) { std::copy_n(a.data(), a.size(), b.data()); };
  copy(from.master, to->master);
  copy(from.weight, to->weight);
  copy(from.remainder, to->remainder);
  copy(from.codes1, to->codes1);
  copy(from.codes2, to->codes2);
  copy(from.scales1, to->scales1);
  copy(from.scales2, to->scales2);
  copy(from.moment1, to->moment1);
  copy(from.moment2, to->moment2);
}

template <class Moments>
bool SameState(const State& a, const State& b) {
  const auto same = [](const auto& x, const auto& y) {
    return SameBits(x.data(), y.data(), x.size());
  };
  if (!same(a.master, b.master)) return false;
  if constexpr (std::is_same_v<Moments, EightBitMoments>) {
    return same(a.codes1, b.codes1) && same(a.codes2, b.codes2) && same(a.scales1, b.scales1) &&
           same(a.scales2, b.scales2);
  } else {
    return same(a.moment1, b.moment1) && same(a.moment2, b.moment2);
  }
}

void FillTypical(std::mt19937& random, State* state, std::vector<float>* gradient) {
  for (size_t i = 0; i < gradient->size(); ++i) {
    state->master[i] = RandomValue(random, 0.02);
    state->codes1[i] = static_cast<uint8_t>(random());
    state->codes2[i] = static_cast<uint8_t>(random());
    state->moment1[i] = BFloat16::FromFloat(RandomValue(random, 1e-3));
    state->moment2[i] = BFloat16::FromFloat(std::fabs(RandomValue(random, 1e-6)));
    (*gradient)[i] = BFloat16::FromFloat(RandomValue(random, 1.0)).ToFloat();
  }
  for (size_t b = 0; b < state->scales1.size(); ++b) {
    state->scales1[b] = std::fabs(RandomValue(random, 1e-3));
    state->scales2[b] = std::fabs(RandomValue(random, 1e-3));
  }
  state->SplitWeightsOfMaster();
}

template <class Moments>
State Expected(const AdamWOptions& options, uint64_t first, const State& old_state,
               const std::vector<float>& gradient) {
  State result(gradient.size(), 0);
  Copy(old_state, &result);
  const AdamWCoefficients k = Coefficients(options);
  if constexpr (std::is_same_v<Moments, EightBitMoments>) {
    reference::AdamWCompact(k, gradient.data(), gradient.size(), result.master.data(),
                            result.MomentsOf<Moments>());
  } else {
    reference::AdamWCompact(k, options.step, first, gradient.data(), gradient.size(),
                            result.master.data(), result.MomentsOf<Moments>());
  }
  return result;
}

// Runs one instance in one form, the weights joined into result->master.
template <class Weights, class Moments, typename Gradient>
void RunInstance(bool in_place, const AdamWOptions& options, uint64_t first, State& old_state,
                 const std::vector<float>& gradient, State* result) {
  std::vector<Gradient> typed(gradient.size());
  for (size_t i = 0; i < gradient.size(); ++i) {
    if constexpr (std::is_same_v<Gradient, float>) {
      typed[i] = gradient[i];
    } else {
      typed[i] = BFloat16::FromFloat(gradient[i]);
    }
  }
  if (in_place) Copy(old_state, result);
  State& from = in_place ? *result : old_state;
  const auto old_view = from.View<Weights, Moments>();
  const auto new_view = result->View<Weights, Moments>();
  ASSERT_EQ(AdamWCompact(options, first, old_view, typed.data(), gradient.size(), new_view),
            Status::kOk);
  if (std::is_same_v<Weights, SplitWeights>) result->JoinWeights();
}

// body(weights, moments, gradient type) with null pointers as types.
template <class Body>
void ForEachInstance(Body body) {
  const auto moments = [&](auto moments_type) {
    body(SplitWeights(), moments_type, BFloat16());
    body(SplitWeights(), moments_type, float());
    body(MasterWeights(), moments_type, float());
  };
  moments(EightBitMoments());
  moments(BFloat16Moments());
}

TEST(CompactAdamW, EveryInstanceCountPlacementAndTarget_BitsOfReference) {
  ForEachTarget([] {
    std::mt19937 random(31);
    for (const size_t count : {0, 1, 15, 17, 255, 256, 257, 511, 512, 1100}) {
      for (const size_t shift : {0, 1, 13}) {
        State old_state(count, shift);
        std::vector<float> gradient(count);
        FillTypical(random, &old_state, &gradient);
        ForEachInstance([&](auto weights, auto moments, auto gradient_type) {
          using Moments = decltype(moments);
          const State expected = Expected<Moments>(TypicalOptions(), 512, old_state, gradient);
          for (const bool in_place : {false, true}) {
            State result(count, shift);
            RunInstance<decltype(weights), Moments, decltype(gradient_type)>(
                in_place, TypicalOptions(), 512, old_state, gradient, &result);
            ASSERT_TRUE(SameState<Moments>(result, expected)) << count << " at " << shift;
            ASSERT_TRUE(result.GuardsIntact()) << count << " at " << shift;
          }
        });
      }
    }
  });
}

TEST(CompactAdamW, CutAtBlocks_SameBitsAsOneCall) {
  constexpr size_t kCount = 10 * kQuantiseBlock + 100;
  std::mt19937 random(32);
  State old_state(kCount, 0);
  std::vector<float> gradient(kCount);
  FillTypical(random, &old_state, &gradient);
  ForEachInstance([&](auto weights, auto moments, auto gradient_type) {
    using Weights = decltype(weights);
    using Moments = decltype(moments);
    if constexpr (std::is_same_v<decltype(gradient_type), float> &&
                  std::is_same_v<Weights, MasterWeights>) {
      State whole(kCount, 0), parts(kCount, 0);
      RunInstance<Weights, Moments, float>(true, TypicalOptions(), 1024, old_state, gradient,
                                           &whole);
      Copy(old_state, &parts);
      for (size_t begin = 0, blocks = 1; begin < kCount; begin += blocks++ * kQuantiseBlock) {
        const size_t count = std::min(blocks * kQuantiseBlock, kCount - begin);
        auto view = parts.View<Weights, Moments>();
        view.weights.weight += begin;
        if constexpr (std::is_same_v<Moments, EightBitMoments>) {
          view.moments.exp_avg += begin;
          view.moments.exp_avg_sq_root += begin;
          view.moments.exp_avg_scale += begin / kQuantiseBlock;
          view.moments.exp_avg_sq_root_scale += begin / kQuantiseBlock;
        } else {
          view.moments.exp_avg += begin;
          view.moments.exp_avg_sq += begin;
        }
        ASSERT_EQ(AdamWCompact(TypicalOptions(), 1024 + begin, view, gradient.data() + begin, count,
                               view),
                  Status::kOk);
      }
      EXPECT_TRUE(SameState<Moments>(parts, whole));
    }
  });
}

// With beta1 = 0 the first moment is the gradient: magnitudes around every corner of the map.
TEST(CompactAdamW, CornersOfTheMapOnEveryTarget_CodesOfReference) {
  AdamWOptions options;
  options.beta1 = options.beta2 = 0.0;
  std::vector<float> gradient;
  for (int decade = 0; decade <= 9; ++decade) {
    const float corner = static_cast<float>(std::pow(10.0, -decade));
    for (int i = -60; i < 60; ++i) {
      const uint32_t bits = std::bit_cast<uint32_t>(corner) + static_cast<uint32_t>(i);
      gradient.push_back(std::min(std::bit_cast<float>(bits), 1.0F) * (i % 2 ? 1.0F : -1.0F));
    }
    while (gradient.size() % kQuantiseBlock != 0) gradient.push_back(gradient.size() % 7 / 7.0F);
    gradient.back() = 1.0F;  // the largest
  }
  State zero(gradient.size(), 0);
  const auto clear = [](auto& a) {
    std::fill_n(a.data(), a.size(), std::decay_t<decltype(a[0])>());
  };
  clear(zero.master);
  clear(zero.codes1);
  clear(zero.codes2);
  clear(zero.scales1);
  clear(zero.scales2);
  const State expected = Expected<EightBitMoments>(options, 0, zero, gradient);
  EXPECT_EQ(expected.scales1.data()[0], 1.0F);
  ForEachTarget([&] {
    State result(gradient.size(), 0);
    RunInstance<MasterWeights, EightBitMoments, float>(false, options, 0, zero, gradient, &result);
    ASSERT_TRUE(SameState<EightBitMoments>(result, expected));
  });
}

TEST(CompactAdamW, NonFiniteGradient_PoisonsItsBlockOnly) {
  constexpr size_t kCount = 3 * kQuantiseBlock;
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    ForEachTarget([bad] {
      std::mt19937 random(33);
      State old_state(kCount, 0);
      std::vector<float> gradient(kCount);
      FillTypical(random, &old_state, &gradient);
      gradient[kQuantiseBlock + 5] = bad;
      const State expected = Expected<EightBitMoments>(TypicalOptions(), 0, old_state, gradient);
      State result(kCount, 0);
      RunInstance<SplitWeights, EightBitMoments, BFloat16>(true, TypicalOptions(), 0, old_state,
                                                           gradient, &result);
      ASSERT_TRUE(SameState<EightBitMoments>(result, expected));
      EXPECT_TRUE(std::isfinite(result.scales1[0]) && std::isfinite(result.scales2[2]));
      EXPECT_TRUE(std::isnan(result.scales1[1]) && std::isnan(result.scales2[1]));
    });
  }
}

// The hash takes the upper half of the index from beyond 2^32 elements.
TEST(CompactAdamW, IndexAcross32Bits_BitsOfReference) {
  constexpr size_t kCount = 4 * kQuantiseBlock;
  constexpr uint64_t kFirst = (uint64_t{3} << 32) - 2 * kQuantiseBlock;
  std::mt19937 random(34);
  State old_state(kCount, 0);
  std::vector<float> gradient(kCount);
  FillTypical(random, &old_state, &gradient);
  const State expected = Expected<BFloat16Moments>(TypicalOptions(), kFirst, old_state, gradient);
  State result(kCount, 0), elsewhere(kCount, 0);
  RunInstance<MasterWeights, BFloat16Moments, float>(true, TypicalOptions(), kFirst, old_state,
                                                     gradient, &result);
  EXPECT_TRUE(SameState<BFloat16Moments>(result, expected));
  RunInstance<MasterWeights, BFloat16Moments, float>(true, TypicalOptions(), 0, old_state, gradient,
                                                     &elsewhere);
  EXPECT_FALSE(SameState<BFloat16Moments>(elsewhere, expected));  // other indices, other rounding
}

// Over many elements and steps the rounding's mean is the value: a binomial's five sigma.
TEST(StochasticRounding, ManyElementsAndSteps_MeanIsTheValue) {
  for (const double fraction : {0.01, 0.25, 0.5, 0.9}) {
    for (const bool upper_half : {false, true}) {
      const float value = static_cast<float>(1.0 + fraction / 128);
      int ups = 0, rounds = 0;
      for (uint64_t step = 1; step <= 40; ++step) {
        const uint32_t key = RoundingKey(step, 0);
        for (uint32_t i = 0; i < 1000; ++i, ++rounds) {
          const uint32_t bits = RoundingBits(key, i);
          ups += RoundStochastically(value, upper_half ? bits >> 16 : bits & 0xFFFFu).bits - 0x3F80;
        }
      }
      EXPECT_NEAR(ups, rounds * fraction, 5 * std::sqrt(rounds * fraction * (1 - fraction)));
    }
  }
}

TEST(StochasticRounding, ExactAndSpecialValues_Stay) {
  for (const uint32_t random : {0u, 1u, 0xFFFFu}) {
    EXPECT_EQ(RoundStochastically(1.0F, random).bits, 0x3F80);
    EXPECT_EQ(RoundStochastically(-0.0F, random).bits, 0x8000);
    EXPECT_EQ(RoundStochastically(INFINITY, random).bits, 0x7F80);
    EXPECT_EQ(RoundStochastically(std::bit_cast<float>(0x7FC00000u), random).bits, 0x7FC0);
  }
}

TEST(CompactAdamW, BadArguments_RefusedBeforeWriting) {
  constexpr size_t kCount = 2 * kQuantiseBlock;
  std::mt19937 random(35);
  State a(kCount, 0), b(kCount, 0);
  std::vector<float> gradient(kCount);
  FillTypical(random, &a, &gradient);
  Copy(a, &b);
  const auto from = a.View<MasterWeights, EightBitMoments>();
  const auto to = b.View<MasterWeights, EightBitMoments>();
  const auto call = [&](uint64_t first, const auto& target, const float* g, size_t count) {
    return AdamWCompact(TypicalOptions(), first, from, g, count, target);
  };
  EXPECT_EQ(call(128, to, gradient.data(), kCount), Status::kMisaligned);
  EXPECT_EQ(call(0, to, nullptr, kCount), Status::kNullPointer);
  EXPECT_EQ(call(UINT64_MAX - 255, to, gradient.data(), kCount), Status::kSizeOverflow);
  auto mixed = to;  // one array in place, the others not
  mixed.moments.exp_avg = from.moments.exp_avg;
  EXPECT_EQ(call(0, mixed, gradient.data(), kCount), Status::kOverlap);
  auto shifted = to;
  shifted.moments.exp_avg = from.moments.exp_avg + 1;
  EXPECT_EQ(call(0, shifted, gradient.data(), kCount), Status::kOverlap);
  EXPECT_EQ(call(0, to, to.weights.weight, kCount), Status::kOverlap);
  auto no_scale = to;
  no_scale.moments.exp_avg_scale = nullptr;
  EXPECT_EQ(call(0, no_scale, gradient.data(), kCount), Status::kNullPointer);
  EXPECT_EQ(call(0, to, nullptr, 0), Status::kOk);
  AdamWOptions bad = TypicalOptions();
  bad.beta1 = 1.0;
  EXPECT_EQ(AdamWCompact(bad, 0, from, gradient.data(), kCount, to), Status::kInvalidParameter);
  EXPECT_TRUE(SameState<EightBitMoments>(a, b));
}

// A student learns a teacher: tanh(x A) b with noise, from a fresh batch every step. What counts is
// the loss at the end, against that with fp32 moments.
class Training {
 public:
  static constexpr size_t kInputs = 32, kHidden = 64, kBatch = 32;
  static constexpr size_t kParameters = kInputs * kHidden + kHidden;

  Training() : teacher_(Draw(7, 0.6F)), weights(Draw(8, 0.2F)) {}

  // Loss and gradient of the batch of `step`.
  double Batch(uint64_t step, std::vector<float>* gradient) {
    std::mt19937 random(static_cast<unsigned>(1000 + step));
    std::normal_distribution<float> normal;
    std::fill(gradient->begin(), gradient->end(), 0.0F);
    double loss = 0;
    float x[kInputs], hidden[kHidden], unused[kHidden];
    for (size_t n = 0; n < kBatch; ++n) {
      for (float& v : x) v = normal(random);
      const float target = Output(teacher_, x, unused) + 0.3F * normal(random);
      const float error = Output(weights, x, hidden) - target;
      loss += 0.5 * error * error / kBatch;
      for (size_t h = 0; h < kHidden; ++h) {
        (*gradient)[kInputs * kHidden + h] += error * hidden[h] / kBatch;
        const float back = error * weights[kInputs * kHidden + h] * (1 - hidden[h] * hidden[h]);
        for (size_t i = 0; i < kInputs; ++i) (*gradient)[h * kInputs + i] += back * x[i] / kBatch;
      }
    }
    return loss;
  }

 private:
  static std::vector<float> Draw(unsigned seed, float magnitude) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0F, magnitude);
    std::vector<float> values(kParameters);
    for (float& v : values) v = normal(random);
    return values;
  }
  static float Output(const std::vector<float>& w, const float* x, float* hidden) {
    float y = 0;
    for (size_t h = 0; h < kHidden; ++h) {
      float sum = 0;
      for (size_t i = 0; i < kInputs; ++i) sum += w[h * kInputs + i] * x[i];
      hidden[h] = std::tanh(sum / 4);
      y += w[kInputs * kHidden + h] * hidden[h];
    }
    return y;
  }

  const std::vector<float> teacher_;

 public:
  std::vector<float> weights;
};

// The mean loss of the last quarter of the steps.
template <class Update>
double Train(Update update) {
  constexpr uint64_t kSteps = 600;
  Training training;
  std::vector<float> gradient(Training::kParameters);
  double sum = 0;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    const double loss = training.Batch(step, &gradient);
    if (step > kSteps * 3 / 4) sum += loss;
    const AdamWOptions options = {.learning_rate = 5e-3, .weight_decay = 0.01, .step = step};
    EXPECT_EQ(update(options, training.weights.data(), gradient.data()), Status::kOk);
  }
  return sum / (kSteps / 4);
}

TEST(CompactAdamW, TrainingAStudent_LossWithinTwoPercentOfFp32Moments) {
  const size_t n = Training::kParameters;
  std::vector<float> m(n), v(n);
  double first = 0;
  const double fp32 = Train([&](const AdamWOptions& options, float* w, const float* g) {
    if (options.step == 1) {
      std::vector<float> unused(n);
      first = Training().Batch(1, &unused);
    }
    return AdamWMasterInPlace(options, {w, m.data(), v.data()}, g, n);
  });
  std::vector<uint8_t> codes1(n), codes2(n);
  std::vector<float> scales1(QuantiseScaleCount(n)), scales2(QuantiseScaleCount(n));
  const double eight_bit = Train([&](const AdamWOptions& options, float* w, const float* g) {
    const CompactState<MasterWeights, EightBitMoments> state = {
        {w}, {codes1.data(), scales1.data(), codes2.data(), scales2.data()}};
    return AdamWCompact(options, 0, state, g, n, state);
  });
  std::vector<BFloat16> m16(n), v16(n);
  const double bfloat16 = Train([&](const AdamWOptions& options, float* w, const float* g) {
    const CompactState<MasterWeights, BFloat16Moments> state = {{w}, {m16.data(), v16.data()}};
    return AdamWCompact(options, 0, state, g, n, state);
  });
  EXPECT_LT(fp32, first / 5);  // it learns at all
  EXPECT_NEAR(eight_bit / fp32, 1.0, 0.02);
  EXPECT_NEAR(bfloat16 / fp32, 1.0, 0.02);
  RecordProperty("losses", std::to_string(fp32) + " " + std::to_string(eight_bit) + " " +
                               std::to_string(bfloat16));
}

}  // namespace
}  // namespace geminid::kernels
