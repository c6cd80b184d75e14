#include "kernels/optimizers/adamw/adamw.h"

#include <gtest/gtest.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/numeric/split_master/split_master.h"
#include "kernels/optimizers/adamw/adamw_coefficients.h"
#include "tests/kernels/for_each_target.h"
#include "tests/kernels/optimizers/adamw_reference.h"
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

// The state of `count` parameters in every representation, `shift` elements past a cache line.
struct State {
  State(size_t count, size_t shift)
      : master(count, shift),
        weight(count, shift),
        remainder(count, shift),
        exp_avg(count, shift),
        exp_avg_sq(count, shift) {}

  SplitState Split() {
    return {weight.data(), remainder.data(), exp_avg.data(), exp_avg_sq.data()};
  }
  ConstSplitState ConstSplit() const {
    return {weight.data(), remainder.data(), exp_avg.data(), exp_avg_sq.data()};
  }
  MasterState Master() { return {master.data(), exp_avg.data(), exp_avg_sq.data()}; }
  ConstMasterState ConstMaster() const {
    return {master.data(), exp_avg.data(), exp_avg_sq.data()};
  }
  // Fills the split arrays from `master`. The next function does the reverse.
  void SplitWeights() {
    ASSERT_EQ(SplitMaster(master.data(), master.size(), weight.data(), remainder.data()),
              Status::kOk);
  }
  void JoinWeights() {
    ASSERT_EQ(JoinMaster(weight.data(), remainder.data(), master.size(), master.data()),
              Status::kOk);
  }
  bool GuardsIntact() const {
    return master.GuardsIntact() && weight.GuardsIntact() && remainder.GuardsIntact() &&
           exp_avg.GuardsIntact() && exp_avg_sq.GuardsIntact();
  }

  GuardedArray<float> master;
  GuardedArray<BFloat16> weight;
  GuardedArray<int16_t> remainder;
  GuardedArray<float> exp_avg;
  GuardedArray<float> exp_avg_sq;
};

bool SameState(const State& a, const State& b) {
  const size_t count = a.master.size();
  return SameBits(a.master.data(), b.master.data(), count) &&
         SameBits(a.exp_avg.data(), b.exp_avg.data(), count) &&
         SameBits(a.exp_avg_sq.data(), b.exp_avg_sq.data(), count);
}

void Copy(const State& from, State* to) {
  const size_t count = from.master.size();
  std::copy_n(from.master.data(), count, to->master.data());
  std::copy_n(from.exp_avg.data(), count, to->exp_avg.data());
  std::copy_n(from.exp_avg_sq.data(), count, to->exp_avg_sq.data());
  to->SplitWeights();
}

// Plausible training state and gradients, before the scale.
void FillTypical(std::mt19937& random, State* state, std::vector<float>* gradient) {
  for (size_t i = 0; i < state->master.size(); ++i) {
    state->master[i] = RandomValue(random, 0.02);
    state->exp_avg[i] = RandomValue(random, 1e-3);
    state->exp_avg_sq[i] = std::fabs(RandomValue(random, 1e-6));
    (*gradient)[i] = BFloat16::FromFloat(RandomValue(random, 1.0)).ToFloat();
  }
  state->SplitWeights();
}

// Arbitrary bit patterns. Each kind occurs: subnormals, infinities, NaN, negative second moments.
void FillWild(std::mt19937& random, State* state, std::vector<float>* gradient) {
  for (size_t i = 0; i < state->master.size(); ++i) {
    state->master[i] = AnyFloat(random);
    state->exp_avg[i] = AnyFloat(random);
    state->exp_avg_sq[i] = AnyFloat(random);
    (*gradient)[i] = std::bit_cast<float>(static_cast<uint32_t>(random()) & 0xFFFF0000u);
  }
  state->SplitWeights();
}

State ReferenceUpdate(const AdamWOptions& options, const State& old_state,
                      const std::vector<float>& gradient) {
  AdamWCoefficients k;
  EXPECT_EQ(DeriveAdamWCoefficients(options, &k), Status::kOk);
  State result(old_state.master.size(), 0);
  Copy(old_state, &result);
  for (size_t i = 0; i < gradient.size(); ++i) {
    reference::AdamWElement(k, gradient[i], &result.master[i], &result.exp_avg[i],
                            &result.exp_avg_sq[i]);
  }
  result.SplitWeights();
  return result;
}

enum class Form { kOutOfPlace, kInPlace };
enum class Layout { kSplitBFloat16, kSplitFloat, kMaster };

// Runs one form and layout of the kernel over [0, n). The new state is in *result, with the weights
// joined into result->master.
void RunKernel(Form form, Layout layout, const AdamWOptions& options, const State& old_state,
               const std::vector<float>& gradient, State* result) {
  const size_t n = gradient.size();
  std::vector<BFloat16> narrow(n);
  for (size_t i = 0; i < n; ++i)
    narrow[i] = BFloat16{static_cast<uint16_t>(std::bit_cast<uint32_t>(gradient[i]) >> 16)};
  const bool in_place = form == Form::kInPlace;
  if (in_place) Copy(old_state, result);
  Status status = Status::kUnsupported;
  switch (layout) {
    case Layout::kSplitBFloat16:
      status = in_place ? AdamWSplitInPlace(options, result->Split(), narrow.data(), n)
                        : AdamWSplitOutOfPlace(options, old_state.ConstSplit(), narrow.data(), n,
                                               result->Split());
      break;
    case Layout::kSplitFloat:
      status = in_place ? AdamWSplitInPlace(options, result->Split(), gradient.data(), n)
                        : AdamWSplitOutOfPlace(options, old_state.ConstSplit(), gradient.data(), n,
                                               result->Split());
      break;
    case Layout::kMaster:
      status = in_place ? AdamWMasterInPlace(options, result->Master(), gradient.data(), n)
                        : AdamWMasterOutOfPlace(options, old_state.ConstMaster(), gradient.data(),
                                                n, result->Master());
      break;
  }
  ASSERT_EQ(status, Status::kOk);
  if (layout != Layout::kMaster) result->JoinWeights();
}

template <typename Body>
void ForEachVariant(Body body) {
  for (const Form form : {Form::kOutOfPlace, Form::kInPlace}) {
    for (const Layout layout : {Layout::kSplitBFloat16, Layout::kSplitFloat, Layout::kMaster}) {
      SCOPED_TRACE(testing::Message()
                   << "form " << static_cast<int>(form) << " layout " << static_cast<int>(layout));
      body(form, layout);
    }
  }
}

// Covers every count around the vector lengths, every offset to a cache line, every instruction set
// and every form. Expects the bits of the reference, and no write outside the arrays.
TEST(AdamW, EveryCountPlacementAndTarget_BitsOfReference) {
  ForEachTarget([] {
    std::mt19937 random(11);
    for (const size_t count : {0, 1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 97, 200}) {
      for (const size_t shift : {0, 1, 13, 16, 31}) {
        State old_state(count, shift);
        std::vector<float> gradient(count);
        FillTypical(random, &old_state, &gradient);
        const State expected = ReferenceUpdate(TypicalOptions(), old_state, gradient);
        ForEachVariant([&](Form form, Layout layout) {
          State result(count, shift);
          RunKernel(form, layout, TypicalOptions(), old_state, gradient, &result);
          ASSERT_TRUE(SameState(result, expected)) << count << " at " << shift;
          ASSERT_TRUE(result.GuardsIntact()) << count << " at " << shift;
        });
      }
    }
  });
}

TEST(AdamW, AnyBitsInState_BitsOfReferenceAndOneNaN) {
  constexpr size_t kCount = 4096;
  ForEachTarget([] {
    std::mt19937 random(12);
    State old_state(kCount, 0);
    std::vector<float> gradient(kCount);
    FillWild(random, &old_state, &gradient);
    const State expected = ReferenceUpdate(TypicalOptions(), old_state, gradient);
    ForEachVariant([&](Form form, Layout layout) {
      State result(kCount, 0);
      RunKernel(form, layout, TypicalOptions(), old_state, gradient, &result);
      ASSERT_TRUE(SameState(result, expected));
      int nan_count = 0;
      for (size_t i = 0; i < kCount; ++i) {
        if (!std::isnan(result.master[i])) continue;
        ++nan_count;
        ASSERT_EQ(std::bit_cast<uint32_t>(result.master[i]), 0x7FC00000u);
      }
      EXPECT_GT(nan_count, 0);
    });
  });
}

// The arrays of the new state have different offsets to cache lines, so the kernel does not stream.
TEST(AdamW, OutOfPlace_ArraysAlignedDifferently_BitsOfReference) {
  constexpr size_t kCount = 300;
  std::mt19937 random(13);
  State old_state(kCount, 0);
  std::vector<float> gradient(kCount);
  FillTypical(random, &old_state, &gradient);
  const State expected = ReferenceUpdate(TypicalOptions(), old_state, gradient);
  ForEachTarget([&] {
    for (int odd_one = 0; odd_one < 4; ++odd_one) {
      State result(kCount, 0);
      State moved(kCount, 3);
      SplitState target = result.Split();
      if (odd_one == 0) target.weight = moved.weight.data();
      if (odd_one == 1) target.remainder = moved.remainder.data();
      if (odd_one == 2) target.exp_avg = moved.exp_avg.data();
      if (odd_one == 3) target.exp_avg_sq = moved.exp_avg_sq.data();
      ASSERT_EQ(AdamWSplitOutOfPlace(TypicalOptions(), old_state.ConstSplit(), gradient.data(),
                                     kCount, target),
                Status::kOk);
      ASSERT_TRUE(SameBits(target.weight, expected.weight.data(), kCount));
      ASSERT_TRUE(SameBits(target.remainder, expected.remainder.data(), kCount));
      ASSERT_TRUE(SameBits(target.exp_avg, expected.exp_avg.data(), kCount));
      ASSERT_TRUE(SameBits(target.exp_avg_sq, expected.exp_avg_sq.data(), kCount));
    }
  });
}

TEST(AdamW, CutIntoRandomCalls_SameBitsAsOneCall) {
  constexpr size_t kCount = 5000;
  std::mt19937 random(14);
  State old_state(kCount, 0);
  std::vector<float> gradient(kCount);
  FillTypical(random, &old_state, &gradient);
  State whole(kCount, 0);
  RunKernel(Form::kOutOfPlace, Layout::kSplitFloat, TypicalOptions(), old_state, gradient, &whole);
  State parts(kCount, 0);
  for (size_t begin = 0; begin < kCount;) {
    const size_t count = std::min<size_t>(1 + random() % 200, kCount - begin);
    const ConstSplitState from = {
        old_state.weight.data() + begin, old_state.remainder.data() + begin,
        old_state.exp_avg.data() + begin, old_state.exp_avg_sq.data() + begin};
    const SplitState to = {parts.weight.data() + begin, parts.remainder.data() + begin,
                           parts.exp_avg.data() + begin, parts.exp_avg_sq.data() + begin};
    ASSERT_EQ(AdamWSplitOutOfPlace(TypicalOptions(), from, gradient.data() + begin, count, to),
              Status::kOk);
    begin += count;
  }
  parts.JoinWeights();
  EXPECT_TRUE(SameState(parts, whole));
}

// One step in float64 from the formulas of the paper, with powers and roots of <cmath>.
struct Exact {
  double weight, exp_avg, exp_avg_sq;
  // Magnitudes to which the errors are relative.
  double weight_scale, exp_avg_scale, exp_avg_sq_scale;
};

Exact ExactUpdate(const AdamWOptions& o, double w, double m, double v, double gradient) {
  const double g = gradient * o.grad_scale;
  Exact e;
  e.exp_avg = o.beta1 * m + (1 - o.beta1) * g;
  e.exp_avg_sq = o.beta2 * v + (1 - o.beta2) * g * g;
  const double t = static_cast<double>(o.step);
  const double avg_hat = e.exp_avg / (1 - std::pow(o.beta1, t));
  const double sq_hat = e.exp_avg_sq / (1 - std::pow(o.beta2, t));
  const double step = o.learning_rate * avg_hat / (std::sqrt(sq_hat) + o.epsilon);
  const double decay = o.learning_rate * o.weight_decay * w;
  e.weight = w - decay - step;
  e.exp_avg_scale = std::fabs(o.beta1 * m) + std::fabs((1 - o.beta1) * g);
  e.exp_avg_sq_scale = e.exp_avg_sq;
  // The error of the step includes the cancellation in the first moment.
  e.weight_scale =
      std::fabs(w) + std::fabs(decay) + std::fabs(step) * e.exp_avg_scale / std::fabs(e.exp_avg);
  return e;
}

void ExpectCloseToFloat64(const AdamWOptions& options) {
  constexpr size_t kCount = 100'000;
  constexpr double kTolerance = 1e-6;
  std::mt19937 random(15);
  State old_state(kCount, 0);
  std::vector<float> gradient(kCount);
  FillTypical(random, &old_state, &gradient);
  State result(kCount, 0);
  RunKernel(Form::kOutOfPlace, Layout::kSplitBFloat16, options, old_state, gradient, &result);
  for (size_t i = 0; i < kCount; ++i) {
    const Exact e = ExactUpdate(options, old_state.master[i], old_state.exp_avg[i],
                                old_state.exp_avg_sq[i], gradient[i]);
    ASSERT_NEAR(result.exp_avg[i], e.exp_avg, kTolerance * e.exp_avg_scale);
    ASSERT_NEAR(result.exp_avg_sq[i], e.exp_avg_sq, kTolerance * e.exp_avg_sq_scale);
    ASSERT_NEAR(result.master[i], e.weight, kTolerance * e.weight_scale) << i;
    // The weight that training uses is the rounded new master, and the pair is its exact split.
    const SplitFloat split = SplitMasterBits(std::bit_cast<uint32_t>(result.master[i]));
    ASSERT_EQ(result.weight[i], split.weight);
    ASSERT_EQ(result.remainder[i], split.remainder);
  }
}

TEST(AdamW, ManyOptions_WithinOneMillionthOfFloat64) {
  AdamWOptions options = TypicalOptions();
  for (const uint64_t step : {uint64_t{1}, uint64_t{2}, uint64_t{100}, uint64_t{1'000'000'000}}) {
    options.step = step;
    ExpectCloseToFloat64(options);
  }
  options = {};  // the defaults
  ExpectCloseToFloat64(options);
  options = {.learning_rate = 0.5, .beta1 = 0, .beta2 = 0, .epsilon = 1e-3, .weight_decay = 0.3};
  ExpectCloseToFloat64(options);
  options = {.learning_rate = 1e-6, .beta1 = 0.99, .beta2 = 0.9999, .step = 3, .grad_scale = 1e-4};
  ExpectCloseToFloat64(options);
}

// By hand: if both betas are 0, the first step is -lr g / (|g| + eps), whatever the bias
// correction.
TEST(AdamW, BetasZero_StepIsSignOfGradient) {
  AdamWOptions options = {
      .learning_rate = 0.25, .beta1 = 0, .beta2 = 0, .epsilon = 1e-30, .weight_decay = 0.5};
  float weight[] = {8.0f, 8.0f, 8.0f}, exp_avg[] = {9, 9, 9}, exp_avg_sq[] = {9, 9, 9};
  const float gradient[] = {4.0f, -2.0f, 0.0f};
  ASSERT_EQ(AdamWMasterInPlace(options, {weight, exp_avg, exp_avg_sq}, gradient, 3), Status::kOk);
  EXPECT_EQ(weight[0], 8.0f - 1.0f - 0.25f);
  EXPECT_EQ(weight[1], 8.0f - 1.0f + 0.25f);
  EXPECT_EQ(weight[2], 8.0f - 1.0f);
  EXPECT_EQ(exp_avg[1], -2.0f);
  EXPECT_EQ(exp_avg_sq[1], 4.0f);
}

// With m = v = 0 the corrected moments of the first step are g and g^2, for any betas.
TEST(AdamW, FirstStepFromZero_BiasCorrectionCancels) {
  AdamWOptions options = {.learning_rate = 1e-2, .epsilon = 1e-12};
  float weight = 1.0f, exp_avg = 0, exp_avg_sq = 0;
  const float gradient = 123.0f;
  ASSERT_EQ(AdamWMasterInPlace(options, {&weight, &exp_avg, &exp_avg_sq}, &gradient, 1),
            Status::kOk);
  EXPECT_NEAR(weight, 0.99, 1e-7);
}

// Weights stay exact over many steps: split and fp32 training have the same masters throughout.
TEST(AdamW, HundredSteps_SplitAndMasterAgreeBitForBit) {
  constexpr size_t kCount = 1000;
  std::mt19937 random(16);
  State split(kCount, 0), master(kCount, 0);
  std::vector<float> gradient(kCount);
  FillTypical(random, &split, &gradient);
  Copy(split, &master);
  AdamWOptions options = TypicalOptions();
  for (options.step = 1; options.step <= 100; ++options.step) {
    for (float& g : gradient) g = RandomValue(random, 1.0);
    ASSERT_EQ(AdamWSplitInPlace(options, split.Split(), gradient.data(), kCount), Status::kOk);
    ASSERT_EQ(AdamWMasterInPlace(options, master.Master(), gradient.data(), kCount), Status::kOk);
  }
  split.JoinWeights();
  EXPECT_TRUE(SameState(split, master));
}

#if defined(__x86_64__)
// A thread that flushes subnormals and rounds towards zero gets the same bits, and keeps its
// setting.
TEST(AdamW, CallerFlushesSubnormals_SameBits) {
  constexpr size_t kCount = 1000;
  std::mt19937 random(17);
  State old_state(kCount, 0);
  std::vector<float> gradient(kCount);
  FillWild(random, &old_state, &gradient);
  State expected(kCount, 0), result(kCount, 0);
  RunKernel(Form::kOutOfPlace, Layout::kSplitFloat, TypicalOptions(), old_state, gradient,
            &expected);
  constexpr unsigned kFlushAndTruncate = 0x8040 | 0x6000;
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | kFlushAndTruncate);
  const Status status = AdamWSplitOutOfPlace(TypicalOptions(), old_state.ConstSplit(),
                                             gradient.data(), kCount, result.Split());
  const unsigned after = _mm_getcsr();
  _mm_setcsr(saved);
  ASSERT_EQ(status, Status::kOk);
  EXPECT_EQ(after & kFlushAndTruncate, kFlushAndTruncate);
  result.JoinWeights();
  EXPECT_TRUE(SameState(result, expected));
}
#endif  // defined(__x86_64__)

TEST(AdamW, BadOptions_RefusedBeforeWriting) {
  const double kNaN = std::numeric_limits<double>::quiet_NaN();
  const double kInfinity = std::numeric_limits<double>::infinity();
  const auto refused = [](auto change) {
    AdamWOptions options = TypicalOptions();
    change(options);
    float weight = 1, exp_avg = 2, exp_avg_sq = 3;
    const float gradient = 4;
    EXPECT_EQ(CheckAdamWOptions(options), Status::kInvalidParameter);
    EXPECT_EQ(AdamWMasterInPlace(options, {&weight, &exp_avg, &exp_avg_sq}, &gradient, 1),
              Status::kInvalidParameter);
    EXPECT_EQ(weight, 1);
    EXPECT_EQ(exp_avg, 2);
    EXPECT_EQ(exp_avg_sq, 3);
  };
  for (const double bad : {kNaN, kInfinity, -kInfinity, -1e-9}) {
    refused([&](AdamWOptions& o) { o.learning_rate = bad; });
    refused([&](AdamWOptions& o) { o.beta1 = bad; });
    refused([&](AdamWOptions& o) { o.beta2 = bad; });
    refused([&](AdamWOptions& o) { o.epsilon = bad; });
    refused([&](AdamWOptions& o) { o.weight_decay = bad; });
  }
  for (const double bad : {kInfinity, -kInfinity, 1e39}) {
    refused([&](AdamWOptions& o) { o.grad_scale = bad; });
  }
  refused([](AdamWOptions& o) { o.beta1 = 1; });
  refused([](AdamWOptions& o) { o.beta2 = 1; });
  refused([](AdamWOptions& o) { o.epsilon = 0; });
  refused([](AdamWOptions& o) { o.epsilon = 1e-60; });  // epsilon is 0 as a float
  refused([](AdamWOptions& o) { o.step = 0; });
  refused([](AdamWOptions& o) { o.learning_rate = 1e39; });
  EXPECT_EQ(CheckAdamWOptions(TypicalOptions()), Status::kOk);
  EXPECT_EQ(CheckAdamWOptions({}), Status::kOk);
}

// A gradient that is clipped by a NaN norm has such a scale.
TEST(AdamW, GradScaleOfNaN_MakesAllNaN) {
  AdamWOptions options = TypicalOptions();
  options.grad_scale = std::numeric_limits<double>::quiet_NaN();
  float weight = 1, exp_avg = 2, exp_avg_sq = 3;
  const float gradient = 4;
  EXPECT_EQ(AdamWMasterInPlace(options, {&weight, &exp_avg, &exp_avg_sq}, &gradient, 1),
            Status::kOk);
  EXPECT_TRUE(std::isnan(weight) && std::isnan(exp_avg) && std::isnan(exp_avg_sq));
}

TEST(AdamW, BadBuffers_RefusedBeforeWriting) {
  constexpr size_t kCount = 64;
  std::mt19937 random(18);
  State old_state(kCount, 0), target(kCount, 0), untouched(kCount, 0);
  std::vector<float> gradient(kCount);
  FillTypical(random, &old_state, &gradient);
  Copy(old_state, &target);
  Copy(old_state, &untouched);
  const auto run = [&](ConstSplitState from, const float* g, size_t n, SplitState to) {
    const Status status = AdamWSplitOutOfPlace(TypicalOptions(), from, g, n, to);
    EXPECT_TRUE(SameBits(target.weight.data(), untouched.weight.data(), kCount));
    EXPECT_TRUE(SameBits(target.remainder.data(), untouched.remainder.data(), kCount));
    EXPECT_TRUE(SameBits(target.exp_avg.data(), untouched.exp_avg.data(), kCount));
    EXPECT_TRUE(SameBits(target.exp_avg_sq.data(), untouched.exp_avg_sq.data(), kCount));
    return status;
  };
  const ConstSplitState from = old_state.ConstSplit();
  const SplitState to = target.Split();
  EXPECT_EQ(run(from, nullptr, kCount, to), Status::kNullPointer);
  ConstSplitState bad_from = from;
  bad_from.remainder = nullptr;
  EXPECT_EQ(run(bad_from, gradient.data(), kCount, to), Status::kNullPointer);
  SplitState bad_to = to;
  bad_to.exp_avg_sq = nullptr;
  EXPECT_EQ(run(from, gradient.data(), kCount, bad_to), Status::kNullPointer);
  bad_to = to;
  bad_to.exp_avg = reinterpret_cast<float*>(reinterpret_cast<uintptr_t>(to.exp_avg) + 2);
  EXPECT_EQ(run(from, gradient.data(), kCount - 1, bad_to), Status::kMisaligned);
  bad_to = to;
  bad_to.exp_avg = to.exp_avg_sq + kCount - 1;
  EXPECT_EQ(run(from, gradient.data(), kCount, bad_to), Status::kOverlap);
  bad_from = from;
  bad_from.exp_avg = to.exp_avg + 1;  // an update in place needs the same arrays
  EXPECT_EQ(run(bad_from, gradient.data(), kCount, to), Status::kOverlap);
  EXPECT_EQ(run(from, to.exp_avg, kCount, to), Status::kOverlap);
  EXPECT_EQ(run(from, gradient.data(), SIZE_MAX, to), Status::kSizeOverflow);
  EXPECT_EQ(AdamWSplitInPlace(TypicalOptions(), to, to.exp_avg_sq, kCount), Status::kOverlap);
  EXPECT_EQ(AdamWSplitInPlace(TypicalOptions(), {}, static_cast<const float*>(nullptr), 0),
            Status::kOk);
}

}  // namespace
}  // namespace geminid::kernels
