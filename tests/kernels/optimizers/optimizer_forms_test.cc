// All forms share one rule and one loop. Every form of parameters and gradients, instruction set,
// offset and split gives the bits of the rule on single floats.
#include <gtest/gtest.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <functional>
#include <random>
#include <vector>

#include "kernels/optimizers/adagrad/adagrad_rule.h"
#include "kernels/optimizers/adam/adam.h"
#include "kernels/optimizers/adam/adam_rule.h"
#include "kernels/optimizers/lamb/lamb_rule.h"
#include "kernels/optimizers/lars/lars_rule.h"
#include "kernels/optimizers/lion/lion_rule.h"
#include "kernels/optimizers/sgd/sgd_rule.h"
#include "kernels/optimizers/step/elementwise.h"
#include "tests/kernels/for_each_target.h"
#include "tests/kernels/optimizers/optimizer_cases.h"

namespace geminid::kernels {
namespace {

using Kernel = std::function<Status(const ConstParameterArrays&, const GradientArray&, size_t,
                                    const ParameterArrays&)>;
using Definition = std::function<void(Element<float>&)>;

// A kernel, and the rule that defines its bits.
struct RuleCase {
  const char* name;
  int states;
  Kernel kernel;
  Definition definition;
};

template <class Options, class Step, class Rule>
RuleCase Pair(const char* name, const Options& options, Step step, const Rule& rule) {
  return {name, Rule::kStates,
          [=](const ConstParameterArrays& from, const GradientArray& g, size_t n,
              const ParameterArrays& to) { return step(options, from, g, n, to); },
          [=](Element<float>& e) { rule(e); }};
}

template <class Rule, class... Arguments>
Rule Made(const Arguments&... arguments) {
  Rule rule;
  EXPECT_EQ(MakeRule(arguments..., &rule), Status::kOk);
  return rule;
}

std::vector<RuleCase> RuleCases() {
  const double scale = 1.0 / 1024;
  const AdamWOptions adamw = {.weight_decay = 0.1, .step = 17, .grad_scale = scale};
  const LambOptions lamb = {.gradient_norm = 3.0, .step = 17, .grad_scale = scale};
  const LambNorms lamb_norms = {2.0, 5.0};
  const LarsOptions lars = {.weight_decay = 0.1, .step = 17, .grad_scale = scale};
  const LarsNorms lars_norms = {2.0, 5.0};
  const SgdOptions sgd = {.weight_decay = 0.1, .step = 17, .grad_scale = scale};
  SgdOptions momentum = sgd;
  momentum.momentum = 0.9;
  momentum.nesterov = true;
  SgdCoefficients k, k_momentum;
  EXPECT_EQ(MakeCoefficients(sgd, &k), Status::kOk);
  EXPECT_EQ(MakeCoefficients(momentum, &k_momentum), Status::kOk);
  const AdagradOptions adagrad = {.weight_decay = 0.1, .step = 17, .grad_scale = scale};
  const LionOptions lion = {.weight_decay = 0.1, .step = 17, .grad_scale = scale};
  const auto lamb_step = [=](const LambOptions& o, const ConstParameterArrays& from,
                             const GradientArray& g, size_t n, const ParameterArrays& to) {
    return LambApply(o, lamb_norms, from, g, n, to);
  };
  const auto lars_step = [=](const LarsOptions& o, const ConstParameterArrays& from,
                             const GradientArray& g, size_t n, const ParameterArrays& to) {
    return LarsApply(o, lars_norms, from, g, n, to);
  };
  return {Pair("adamw", adamw, AdamWStep, Made<AdamWRule>(adamw)),
          Pair("adam", adamw, AdamStep, Made<AdamRule>(adamw)),
          Pair("lamb", lamb, lamb_step, Made<LambRule>(lamb, lamb_norms)),
          Pair("lars", lars, lars_step, Made<LarsRule>(lars, lars_norms)),
          Pair("sgd", sgd, SgdStep, SgdRule{k}),
          Pair("sgd with momentum", momentum, SgdStep, MomentumRule{k_momentum}),
          Pair("adagrad", adagrad, AdagradStep, Made<AdagradRule>(adagrad)),
          Pair("lion", lion, LionStep, Made<LionRule>(lion))};
}

// A problem and its result by the definition.
struct Problem {
  Problem(size_t count, unsigned seed) : gradient(count), bfloat16(count) {
    std::mt19937 random(seed);
    masters = RandomValues(random, count, 0.02);
    state0 = RandomValues(random, count, 1e-3);
    state1 = RandomValues(random, count, 1e-6);
    for (float& v : state1) v = std::fabs(v);
    for (float& s : state0) s = std::fabs(s);  // Adagrad's state is a sum of squares
    SetGradient(RandomGradient(random, count));
  }
  void SetGradient(const std::vector<float>& values) {
    gradient = values;
    for (size_t i = 0; i < values.size(); ++i) {
      bfloat16[i] = BFloat16::FromFloat(values[i]);
    }
  }
  void Fill(ParameterStore* store) const {
    store->SetMasters(masters);
    std::copy(state0.begin(), state0.end(), store->state0());
    std::copy(state1.begin(), state1.end(), store->state1());
  }
  void Expect(const RuleCase& c, ParameterStore* store) const {
    Fill(store);
    std::vector<float> updated = masters;
    for (size_t i = 0; i < masters.size(); ++i) {
      Element<float> e = {gradient[i], masters[i], {state0[i], state1[i]}, {}};
      c.definition(e);
      updated[i] = e.weight;
      store->state0()[i] = e.state[0];
      store->state1()[i] = e.state[1];
    }
    store->SetMasters(updated);
  }
  GradientArray As(GradientType type) const {
    if (type == GradientType::kBFloat16) return bfloat16.data();
    return gradient.data();
  }

  std::vector<float> masters, state0, state1, gradient;
  std::vector<BFloat16> bfloat16;
};

constexpr GradientType kAllGradients[] = {GradientType::kFloat, GradientType::kBFloat16};

// Steps the problem in one form, in place and out of place, and compares with the definition.
void ExpectDefinition(const RuleCase& c, const Problem& problem, WeightForm form, GradientType type,
                      size_t shift) {
  const size_t count = problem.masters.size();
  ParameterStore expected(form, count), before(form, count), after(form, count, shift);
  ParameterStore in_place(form, count, shift);
  problem.Expect(c, &expected);
  problem.Fill(&before);
  problem.Fill(&after);  // states that the rule lacks do not change
  problem.Fill(&in_place);
  ASSERT_EQ(c.kernel(before.At().View(), problem.As(type), count, after.At()), Status::kOk);
  ASSERT_EQ(c.kernel(in_place.At().View(), problem.As(type), count, in_place.At()), Status::kOk);
  ASSERT_TRUE(after.SameAs(expected)) << "out of place";
  ASSERT_TRUE(in_place.SameAs(expected)) << "in place";
  ASSERT_TRUE(after.GuardsIntact() && in_place.GuardsIntact());
}

TEST(OptimizerForms, EveryFormGradientTargetAndPlacement_BitsOfTheRule) {
  const std::vector<RuleCase> cases = RuleCases();
  ForEachTarget([&] {
    for (const RuleCase& c : cases) {
      for (const WeightForm form : kAllForms) {
        for (const GradientType type : kAllGradients) {
          SCOPED_TRACE(testing::Message() << c.name << ", form " << static_cast<int>(form)
                                          << ", gradient " << static_cast<int>(type));
          for (const size_t count : {0, 1, 7, 16, 33, 100, 1024, 2150}) {
            for (const size_t shift : {0, 13, 32}) {
              SCOPED_TRACE(testing::Message() << count << " values from " << shift);
              ExpectDefinition(c, Problem(count, 41), form, type, shift);
              if (testing::Test::HasFatalFailure()) return;
            }
          }
        }
      }
    }
  });
}

// Weights, states and gradients contain infinities, NaN and subnormals. Expects one NaN, and the
// same bits.
TEST(OptimizerForms, AnyBits_BitsOfTheRule) {
  constexpr size_t kCount = 4096;
  std::mt19937 random(42);
  Problem problem(kCount, 42);
  for (size_t i = 0; i < kCount; ++i) {
    problem.masters[i] = AnyFloat(random);
    problem.state0[i] = AnyFloat(random);
    problem.state1[i] = AnyFloat(random);
    problem.gradient[i] = AnyFloat(random);
  }
  const std::vector<RuleCase> cases = RuleCases();
  ForEachTarget([&] {
    for (const RuleCase& c : cases) {
      SCOPED_TRACE(c.name);
      ExpectDefinition(c, problem, WeightForm::kFloat, GradientType::kFloat, 0);
      ExpectDefinition(c, problem, WeightForm::kSplit, GradientType::kFloat, 0);
    }
  });
}

TEST(OptimizerForms, CutIntoRandomCalls_SameBitsAsOneCall) {
  constexpr size_t kCount = 5000;
  const Problem problem(kCount, 43);
  std::mt19937 random(43);
  for (const RuleCase& c : RuleCases()) {
    for (const WeightForm form : kAllForms) {
      ParameterStore expected(form, kCount), before(form, kCount), after(form, kCount);
      problem.Expect(c, &expected);
      problem.Fill(&before);
      problem.Fill(&after);
      for (size_t begin = 0; begin < kCount;) {
        const size_t count = std::min<size_t>(1 + random() % 300, kCount - begin);
        ASSERT_EQ(
            c.kernel(before.At(begin).View(), Advance(problem.As(GradientType::kFloat), begin),
                     count, after.At(begin)),
            Status::kOk);
        begin += count;
      }
      ASSERT_TRUE(after.SameAs(expected)) << c.name;
    }
  }
}

// A gradient scale that is a power of two is divided out exactly.
TEST(OptimizerForms, GradientTimesPowerOfTwo_SameBits) {
  constexpr size_t kCount = 500;
  for (const OptimizerCase& c : AllCases()) {
    TensorOptions tensor;
    tensor.shape = {25, 20};
    std::mt19937 random(44);
    const std::vector<float> gradient = RandomGradient(random, kCount);
    const std::vector<float> weights = RandomValues(random, kCount, 0.05);
    const auto stepped = [&](double scale) {
      ParameterStore store(WeightForm::kFloat, kCount);
      store.SetMasters(weights);
      std::vector<float> scaled = gradient;
      for (float& g : scaled) g *= static_cast<float>(scale);
      ShardedStep step(c.options, {tensor});
      std::vector<float> factors(step.FactorTotal());
      StepScalars scalars = ScalarsOf(c, 1);
      scalars.grad_scale = 1.0 / scale;
      const Segment segment = {0, 0, kCount, store.At().View(), GradientArray(scaled.data())};
      EXPECT_EQ(step.Prepare(
                    scalars, {&segment, 1}, factors.data(), [](std::span<double>) { return true; },
                    factors.data()),
                Status::kOk);
      EXPECT_EQ(step.Apply(segment, store.At()), Status::kOk);
      return store.Masters();
    };
    const std::vector<float> plain = stepped(1), up = stepped(65536), down = stepped(1.0 / 256);
    EXPECT_TRUE(SameBits(plain.data(), up.data(), kCount)) << c.name;
    EXPECT_TRUE(SameBits(plain.data(), down.data(), kCount)) << c.name;
    EXPECT_FALSE(SameBits(plain.data(), weights.data(), kCount)) << c.name;
  }
}

#if defined(__x86_64__)
// A thread that flushes subnormals and rounds towards zero gets the same bits.
TEST(OptimizerForms, CallerFlushesSubnormals_SameBits) {
  constexpr size_t kCount = 1000;
  const Problem problem(kCount, 45);
  constexpr unsigned kFlushAndTruncate = 0x8040 | 0x6000;
  for (const RuleCase& c : RuleCases()) {
    ParameterStore expected(WeightForm::kFloat, kCount), store(WeightForm::kFloat, kCount);
    problem.Expect(c, &expected);
    problem.Fill(&store);
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(saved | kFlushAndTruncate);
    const Status status =
        c.kernel(store.At().View(), problem.As(GradientType::kFloat), kCount, store.At());
    _mm_setcsr(saved);
    ASSERT_EQ(status, Status::kOk);
    EXPECT_TRUE(store.SameAs(expected)) << c.name;
  }
}
#endif  // defined(__x86_64__)

// In every form, a bad call may change nothing.
TEST(OptimizerForms, BadArrays_RefusedBeforeWriting) {
  constexpr size_t kCount = 100;
  const Problem problem(kCount, 46);
  for (const RuleCase& c : RuleCases()) {
    SCOPED_TRACE(c.name);
    for (const WeightForm form : kAllForms) {
      ParameterStore before(form, kCount), after(form, kCount), untouched(form, kCount);
      problem.Fill(&before);
      problem.Fill(&after);
      problem.Fill(&untouched);
      const GradientArray gradient = problem.As(GradientType::kFloat);
      const auto refused = [&](Status expected, ConstParameterArrays from, GradientArray g,
                               size_t count, ParameterArrays to) {
        EXPECT_EQ(c.kernel(from, g, count, to), expected);
        EXPECT_TRUE(after.SameAs(untouched));
      };
      const ConstParameterArrays from = before.At().View();
      const ParameterArrays to = after.At();
      refused(Status::kNullPointer, from, static_cast<const float*>(nullptr), kCount, to);
      refused(Status::kNullPointer, from, gradient, kCount, ParameterArrays{.form = form});
      refused(Status::kSizeOverflow, from, gradient, SIZE_MAX, to);
      GradientArray odd = gradient;
      odd.data = static_cast<const char*>(gradient.data) + 1;
      refused(Status::kMisaligned, from, odd, kCount - 1, to);
      ParameterArrays other = to;
      other.form = form == WeightForm::kFloat ? WeightForm::kSplit : WeightForm::kFloat;
      refused(Status::kInvalidShape, from, gradient, kCount, other);
      other.form = static_cast<WeightForm>(77);
      refused(Status::kUnsupported, other.View(), gradient, kCount, other);
      odd = gradient;
      odd.type = static_cast<GradientType>(77);
      refused(Status::kUnsupported, from, odd, kCount, to);
      // A shift by one is neither in place nor out of place.
      refused(Status::kOverlap, after.At(1).View(), gradient, kCount - 1, to);
      if (c.states > 0) {
        refused(Status::kOverlap, from, GradientArray(after.state0() + 1), kCount - 1, to);
        ParameterArrays without = to;
        without.state[0] = nullptr;
        refused(Status::kNullPointer, from, gradient, kCount, without);
      }
      EXPECT_EQ(c.kernel({.form = form}, GradientArray(), 0, {.form = form}), Status::kOk);
    }
  }
}

}  // namespace
}  // namespace geminid::kernels
