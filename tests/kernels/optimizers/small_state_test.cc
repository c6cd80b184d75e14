// State in bf16. A step is the step of fp32 state. The new state is rounded by the element's index
// in its tensor and by nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "kernels/numeric/stochastic_rounding/stochastic_rounding_rule.h"
#include "kernels/optimizers/adam/adam.h"
#include "kernels/optimizers/adamw/adamw.h"
#include "kernels/optimizers/sharded_step.h"
#include "tests/kernels/for_each_target.h"
#include "tests/kernels/optimizers/optimizer_cases.h"

namespace geminid::kernels {
namespace {

constexpr uint64_t kName = 0x1234'5678'9ABC'DEF0u;
constexpr uint64_t kStep = 17;
constexpr FactorShape kShape = {50, 43};
const size_t kCount = kShape.Elements();

// Weights with state in bf16, and with the same state in fp32.
struct Twins {
  Twins(WeightForm form, size_t count, size_t shift)
      : store(form, count, shift), small0(count, shift), small1(count, shift) {}

  ParameterArrays Small(size_t offset = 0) {
    ParameterArrays arrays = store.At(offset);
    arrays.state_form = StateForm::kBFloat16;
    arrays.state[0] = arrays.state[1] = nullptr;
    arrays.small_state[0] = small0.data() + offset;
    arrays.small_state[1] = small1.data() + offset;
    return arrays;
  }
  void Fill(unsigned seed) {
    std::mt19937 random(seed);
    store.SetMasters(RandomValues(random, store.size(), 0.02));
    for (size_t i = 0; i < store.size(); ++i) {
      small0[i] = BFloat16::FromFloat(std::fabs(RandomValue(random, 1e-3)));
      small1[i] = BFloat16::FromFloat(std::fabs(RandomValue(random, 1e-6)));
      store.state0()[i] = small0[i].ToFloat();
      store.state1()[i] = small1[i].ToFloat();
    }
  }
  bool GuardsIntact() const {
    return store.GuardsIntact() && small0.GuardsIntact() && small1.GuardsIntact();
  }

  ParameterStore store;
  GuardedArray<BFloat16> small0, small1;
};

struct Gradients {
  explicit Gradients(size_t count) {
    std::mt19937 random(3);
    values = RandomGradient(random, count);
    for (const float value : values) {
      bfloat16.push_back(BFloat16::FromFloat(value));
    }
  }
  GradientArray As(GradientType type) const {
    if (type == GradientType::kBFloat16) return bfloat16.data();
    return values.data();
  }
  std::vector<float> values;
  std::vector<BFloat16> bfloat16;
};

// `stepped` was stepped with state in bf16, and `reference` with state in fp32.
void ExpectRounded(Twins& stepped, Twins& reference, const StateRounding& rounding, int states) {
  ASSERT_EQ(stepped.store.Masters(), reference.store.Masters());
  ASSERT_TRUE(stepped.GuardsIntact());
  for (size_t i = 0; i < stepped.store.size(); ++i) {
    const uint64_t index = rounding.first_element + i;
    const uint32_t random =
        RoundingBits(RoundingKey(rounding.seed, index >> 32), static_cast<uint32_t>(index));
    if (states > 0) {
      ASSERT_EQ(stepped.small0[i],
                RoundStochastically(reference.store.state0()[i], random & 0xFFFFu))
          << i;
    }
    if (states > 1) {
      ASSERT_EQ(stepped.small1[i], RoundStochastically(reference.store.state1()[i], random >> 16))
          << i;
    }
  }
}

std::vector<TensorOptions> OneTensor() {
  TensorOptions tensor;
  tensor.shape = kShape;
  tensor.rounding_id = kName;
  return {tensor};
}

struct Prepared {
  Prepared(const OptimizerCase& c, const Segment& whole) : step(c.options, OneTensor()) {
    factors.resize(step.FactorTotal());
    EXPECT_EQ(step.Prepare(
                  ScalarsOf(c, kStep), {&whole, 1}, factors.data(),
                  [](std::span<double>) { return true; }, factors.data()),
              Status::kOk);
  }
  ShardedStep step;
  std::vector<float> factors;
};

// A step in random segments, from one array to another or in place.
void Step(const OptimizerCase& c, const Gradients& gradients, GradientType type, bool in_place,
          Twins& from, Twins& to) {
  const ConstParameterArrays old_arrays = from.Small().View();
  Prepared prepared(c, {0, 0, kCount, old_arrays, gradients.As(type)});
  std::mt19937 random(5);
  for (size_t begin = 0; begin < kCount;) {
    const size_t count = std::min<size_t>(1 + random() % 900, kCount - begin);
    const Segment part = {0, begin, count, Advance(old_arrays, begin),
                          Advance(gradients.As(type), begin)};
    ASSERT_EQ(prepared.step.Apply(part, (in_place ? from : to).Small(begin)), Status::kOk);
    begin += count;
  }
}

TEST(SmallState, EveryOptimizerFormGradientAndTarget_IsTheFloatStepRoundedByIndex) {
  const Gradients gradients(kCount);
  ForEachTarget([&] {
    for (const OptimizerCase& c : AllCases()) {
      for (const WeightForm form : kAllForms) {
        for (const GradientType type : {GradientType::kFloat, GradientType::kBFloat16}) {
          SCOPED_TRACE(testing::Message() << c.name << ", form " << static_cast<int>(form)
                                          << ", gradient " << static_cast<int>(type));
          Twins reference(form, kCount, 0);
          reference.Fill(7);
          const Segment whole = {0, 0, kCount, reference.store.At().View(), gradients.As(type)};
          Prepared prepared(c, whole);
          ASSERT_EQ(prepared.step.Apply(whole, reference.store.At()), Status::kOk);
          for (const bool in_place : {false, true}) {
            for (const size_t shift : {0, 13}) {
              Twins from(form, kCount, shift), to(form, kCount, shift);
              from.Fill(7);
              Step(c, gradients, type, in_place, from, to);
              ExpectRounded(in_place ? from : to, reference, {RoundingSeed(kName, kStep), 0},
                            StateArrays(c.options));
              if (testing::Test::HasFatalFailure()) return;
            }
          }
        }
      }
    }
  });
}

using Kernel = std::function<Status(const ConstParameterArrays&, const GradientArray&, size_t,
                                    const ParameterArrays&)>;

// AdamW has a loop of its own. Adam has the loop of all rules.
TEST(SmallState, IndicesAcross32Bits_TakeTheNextKey) {
  const AdamWOptions options = {.weight_decay = 0.1, .step = 17, .grad_scale = 1.0 / 1024};
  const Kernel kernels[] = {[&](const auto& from, const auto& g, size_t n, const auto& to) {
                              return AdamWStep(options, from, g, n, to);
                            },
                            [&](const auto& from, const auto& g, size_t n, const auto& to) {
                              return AdamStep(options, from, g, n, to);
                            }};
  const Gradients gradients(kCount);
  const StateRounding rounding = {99, (uint64_t{3} << 32) - 700};
  ForEachTarget([&] {
    for (const Kernel& kernel : kernels) {
      for (const bool in_place : {false, true}) {
        Twins reference(WeightForm::kSplit, kCount, 0), from(WeightForm::kSplit, kCount, 0),
            to(WeightForm::kSplit, kCount, 0);
        reference.Fill(8);
        from.Fill(8);
        const GradientArray g = gradients.As(GradientType::kBFloat16);
        ASSERT_EQ(kernel(reference.store.At().View(), g, kCount, reference.store.At()),
                  Status::kOk);
        ParameterArrays target = (in_place ? from : to).Small();
        target.rounding = rounding;
        ASSERT_EQ(kernel(from.Small().View(), g, kCount, target), Status::kOk);
        ExpectRounded(in_place ? from : to, reference, rounding, 2);
      }
    }
  });
}

TEST(SmallState, TensorLeftOutOfSteps_RoundsByItsOwnNumberOfUpdates) {
  const OptimizerCase c = MakeCase("adamw", OptimizerKind::kAdamW);
  const Gradients gradients(kCount);
  Twins late(WeightForm::kSplit, kCount, 0), reference(WeightForm::kSplit, kCount, 0);
  late.Fill(9);
  reference.Fill(9);
  std::vector<TensorOptions> tensors = OneTensor();
  tensors[0].step = 4;
  for (Twins* one : {&late, &reference}) {
    ShardedStep step(c.options, tensors);
    ASSERT_EQ(step.Prepare(ScalarsOf(c, kStep), {}, nullptr, nullptr, nullptr), Status::kOk);
    const ParameterArrays arrays = one == &late ? one->Small() : one->store.At();
    const Segment whole = {0, 0, kCount, arrays.View(), gradients.As(GradientType::kFloat)};
    ASSERT_EQ(step.Apply(whole, arrays), Status::kOk);
  }
  ExpectRounded(late, reference, {RoundingSeed(kName, 4), 0}, 2);
}

TEST(SmallState, FrozenTensor_IsCopied) {
  const OptimizerCase c = MakeCase("adamw", OptimizerKind::kAdamW);
  std::vector<TensorOptions> tensors = OneTensor();
  tensors[0].frozen = true;
  Twins from(WeightForm::kSplit, kCount, 0), to(WeightForm::kSplit, kCount, 0);
  from.Fill(10);
  ShardedStep step(c.options, tensors);
  ASSERT_EQ(step.Prepare(ScalarsOf(c, kStep), {}, nullptr, nullptr, nullptr), Status::kOk);
  ASSERT_EQ(step.Apply({0, 0, kCount, from.Small().View(), {}}, to.Small()), Status::kOk);
  EXPECT_EQ(to.store.Masters(), from.store.Masters());
  EXPECT_TRUE(std::equal(to.small0.data(), to.small0.data() + kCount, from.small0.data()));
  EXPECT_TRUE(std::equal(to.small1.data(), to.small1.data() + kCount, from.small1.data()));
}

TEST(SmallState, BadArrays_RefusedBeforeWriting) {
  const AdamWOptions options;
  const Gradients gradients(kCount);
  const GradientArray g = gradients.As(GradientType::kFloat);
  Twins a(WeightForm::kSplit, kCount, 0), b(WeightForm::kSplit, kCount, 0);
  a.Fill(11);
  b.Fill(12);
  const std::vector<float> before = b.store.Masters();
  const auto refused = [&](Status status, const ConstParameterArrays& from,
                           const ParameterArrays& to) {
    EXPECT_EQ(AdamWStep(options, from, g, kCount, to), status);
    EXPECT_EQ(AdamStep(options, from, g, kCount, to), status);
    EXPECT_EQ(b.store.Masters(), before);
  };
  refused(Status::kInvalidShape, a.Small().View(), b.store.At());
  refused(Status::kInvalidShape, a.store.At().View(), b.Small());
  ParameterArrays unknown = b.Small();
  unknown.state_form = static_cast<StateForm>(7);
  refused(Status::kUnsupported, unknown.View(), unknown);
  ParameterArrays without = b.Small();
  without.small_state[1] = nullptr;
  refused(Status::kNullPointer, a.Small().View(), without);
  ParameterArrays mixed = b.Small();  // one array in place, the others not
  mixed.small_state[0] = a.small0.data();
  refused(Status::kOverlap, a.Small().View(), mixed);
}

// With beta2 = 0.999 a step changes v by less than half of bf16's last place. Rounding to nearest
// would never change v.
TEST(SmallState, ManySteps_MomentsFollowFloat64OnAverage) {
  constexpr size_t kElements = 4096;
  constexpr uint64_t kSteps = 1500;
  Twins state(WeightForm::kFloat, kElements, 0);
  for (size_t i = 0; i < kElements; ++i) state.small0[i] = state.small1[i] = BFloat16();
  std::mt19937 random(13);
  double m = 0, v = 0;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    const float gradient = 0.5F + static_cast<float>(random() % 1024) / 1024;
    const std::vector<float> gradients(kElements, gradient);
    ParameterArrays arrays = state.Small();
    arrays.rounding = {RoundingSeed(kName, step), 0};
    const AdamWOptions options = {.step = step};
    ASSERT_EQ(AdamWStep(options, arrays.View(), GradientArray(gradients.data()), kElements, arrays),
              Status::kOk);
    m = options.beta1 * m + (1 - options.beta1) * gradient;
    v = options.beta2 * v + (1 - options.beta2) * gradient * gradient;
  }
  double mean_m = 0, mean_v = 0;
  for (size_t i = 0; i < kElements; ++i) {
    mean_m += state.small0[i].ToFloat() / kElements;
    mean_v += state.small1[i].ToFloat() / kElements;
  }
  EXPECT_NEAR(mean_m / m, 1.0, 1e-3);
  EXPECT_NEAR(mean_v / v, 1.0, 2e-3);
}

}  // namespace
}  // namespace geminid::kernels
