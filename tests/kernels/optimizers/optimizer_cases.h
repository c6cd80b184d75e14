// Shared by the tests of the optimizers: one case for each variant of each optimizer, parameters in
// every form, and a small model of consecutive tensors.
#ifndef GEMINID_TESTS_KERNELS_OPTIMIZERS_OPTIMIZER_CASES_H_
#define GEMINID_TESTS_KERNELS_OPTIMIZERS_OPTIMIZER_CASES_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/numeric/split_master/split_master.h"
#include "kernels/optimizers/sharded_step.h"
#include "tests/kernels/test_arrays.h"

namespace geminid::kernels {

struct OptimizerCase {
  std::string name;
  OptimizerOptions options;
};

inline OptimizerCase MakeCase(std::string name, OptimizerKind kind) {
  OptimizerOptions o;
  o.kind = kind;
  o.adamw = {.learning_rate = 3e-3, .beta2 = 0.95, .weight_decay = 0.1};
  o.lamb = {.learning_rate = 3e-3};
  o.lars = {.learning_rate = 0.5, .weight_decay = 1e-2};
  o.sgd = {.learning_rate = 0.05, .weight_decay = 1e-2};
  o.adagrad = {.learning_rate = 0.01, .rate_decay = 0.1, .weight_decay = 1e-2};
  o.lion = {.learning_rate = 1e-3, .weight_decay = 0.1};
  o.adafactor.weight_decay = 0.1;
  o.came.weight_decay = 0.1;
  o.muon.learning_rate = 3e-3;
  return {std::move(name), o};
}

inline std::vector<OptimizerCase> AllCases() {
  using enum OptimizerKind;
  std::vector<OptimizerCase> cases;
  for (const OptimizerKind kind : kAllOptimizerKinds) {
    cases.push_back(MakeCase(std::string(OptimizerName(kind)), kind));
  }
  OptimizerCase c = MakeCase("lamb, coupled, without correction and averaging", kLamb);
  c.options.lamb.decoupled = c.options.lamb.bias_correction = false;
  c.options.lamb.grad_averaging = false;
  cases.push_back(c);
  c = MakeCase("lamb, always adapting, without decay", kLamb);
  c.options.lamb.always_adapt = true;
  c.options.lamb.weight_decay = 0;
  cases.push_back(c);
  c = MakeCase("sgd, nesterov", kSgd);
  c.options.sgd.momentum = 0.9;
  c.options.sgd.nesterov = true;
  cases.push_back(c);
  c = MakeCase("sgd, dampening, decay after momentum", kSgd);
  c.options.sgd.momentum = 0.8;
  c.options.sgd.dampening = 0.3;
  c.options.sgd.decay_after_momentum = true;
  cases.push_back(c);
  c = MakeCase("adafactor, own rate, first moment", kAdafactor);
  c.options.adafactor.relative_step = c.options.adafactor.scale_parameter = false;
  c.options.adafactor.learning_rate = 3e-3;
  c.options.adafactor.beta1 = 0.9;
  cases.push_back(c);
  return cases;
}

// Whether no element's step depends on another element.
inline bool Elementwise(const OptimizerCase& c) { return !NeedsSums(c.options.kind); }

inline StepScalars ScalarsOf(const OptimizerCase& c, uint64_t step) {
  return {.step = step,
          .learning_rate = LearningRate(c.options),
          .grad_scale = 1.0 / 1024,
          .gradient_norm = 1.7};  // LAMB's limit is 1
}

inline constexpr WeightForm kAllForms[] = {WeightForm::kFloat, WeightForm::kSplit};

// Parameters in one form, `shift` elements past a cache line, and their state.
class ParameterStore {
 public:
  ParameterStore(WeightForm form, size_t count, size_t shift = 0)
      : form_(form),
        master_(count, shift),
        bfloat16_(count, shift),
        remainder_(count, shift),
        state0_(count, shift),
        state1_(count, shift) {
    std::fill_n(state0_.data(), count, 0.0F);
    std::fill_n(state1_.data(), count, 0.0F);
    SetMasters(std::vector<float>(count, 0.0F));
  }

  size_t size() const { return master_.size(); }
  float* state0() { return state0_.data(); }
  float* state1() { return state1_.data(); }

  // Arrays that the form lacks are null, so that no code can use them.
  ParameterArrays At(size_t offset = 0) {
    ParameterArrays a;
    a.form = form_;
    const bool split = form_ == WeightForm::kSplit;
    if (!split) a.master = master_.data() + offset;
    if (split) a.remainder = remainder_.data() + offset;
    if (split) a.bfloat16 = bfloat16_.data() + offset;
    a.state[0] = state0_.data() + offset;
    a.state[1] = state1_.data() + offset;
    return a;
  }

  // Sets every array of the form from the masters.
  void SetMasters(const std::vector<float>& masters) {
    for (size_t i = 0; i < masters.size(); ++i) {
      const SplitFloat split = SplitMasterBits(std::bit_cast<uint32_t>(masters[i]));
      master_[i] = masters[i];
      remainder_[i] = split.remainder;
      bfloat16_[i] = split.weight;
    }
  }

  std::vector<float> Masters() const {
    std::vector<float> masters(size());
    for (size_t i = 0; i < size(); ++i) {
      masters[i] =
          form_ == WeightForm::kSplit
              ? std::bit_cast<float>(JoinMasterBits({bfloat16_.data()[i], remainder_.data()[i]}))
              : master_.data()[i];
    }
    return masters;
  }

  void CopyFrom(const ParameterStore& other) {
    SetMasters(other.Masters());
    std::copy_n(other.state0_.data(), size(), state0_.data());
    std::copy_n(other.state1_.data(), size(), state1_.data());
  }

  // Compares the masters and both states.
  bool SameAs(const ParameterStore& other) const {
    const std::vector<float> mine = Masters(), theirs = other.Masters();
    return SameBits(mine.data(), theirs.data(), size()) &&
           SameBits(state0_.data(), other.state0_.data(), size()) &&
           SameBits(state1_.data(), other.state1_.data(), size());
  }
  bool GuardsIntact() const {
    return master_.GuardsIntact() && bfloat16_.GuardsIntact() && remainder_.GuardsIntact() &&
           state0_.GuardsIntact() && state1_.GuardsIntact();
  }

 private:
  WeightForm form_;
  GuardedArray<float> master_;
  GuardedArray<BFloat16> bfloat16_;
  GuardedArray<int16_t> remainder_;
  GuardedArray<float> state0_;
  GuardedArray<float> state1_;
};

// Consecutive tensors in flat arrays.
struct FlatModel {
  std::vector<TensorOptions> tensors;

  static FlatModel Small() {
    FlatModel m;
    m.tensors.push_back({.shape = {23, 41}});
    m.tensors.push_back({.shape = {1, 77}, .learning_rate_scale = 0.5, .weight_decay = 0.0});
    m.tensors.push_back({.shape = {130, 9}});
    m.tensors.push_back({.shape = {7, 1}});
    return m;
  }

  uint64_t Begin(size_t tensor) const {
    uint64_t at = 0;
    for (size_t t = 0; t < tensor; ++t) at += tensors[t].shape.Elements();
    return at;
  }
  uint64_t Elements() const { return Begin(tensors.size()); }

  // The segments of the elements [begin, end), without arrays.
  std::vector<Segment> Cut(uint64_t begin, uint64_t end) const {
    std::vector<Segment> segments;
    for (size_t t = 0; t < tensors.size(); ++t) {
      const uint64_t first = Begin(t), last = Begin(t + 1);
      const uint64_t from = std::max(begin, first), to = std::min(end, last);
      if (from >= to) continue;
      Segment s;
      s.tensor = static_cast<uint32_t>(t);
      s.offset = from - first;
      s.count = to - from;
      segments.push_back(s);
    }
    return segments;
  }
};

inline std::vector<float> RandomValues(std::mt19937& random, size_t count, double magnitude) {
  std::vector<float> values(count);
  for (float& v : values) v = RandomValue(random, magnitude);
  return values;
}

// Values that bf16 holds exactly, of the size of gradients under a loss scale of 1024.
inline std::vector<float> RandomGradient(std::mt19937& random, size_t count) {
  std::vector<float> values(count);
  for (float& v : values) {
    const float x = std::clamp(RandomValue(random, 1.0), -1e3F, 1e3F);
    v = BFloat16::FromFloat(std::fabs(x) < 1e-2F ? std::copysign(1e-2F, x) : x).ToFloat();
  }
  return values;
}

}  // namespace geminid::kernels

#endif  // GEMINID_TESTS_KERNELS_OPTIMIZERS_OPTIMIZER_CASES_H_
