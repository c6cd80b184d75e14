#include <cmath>
#include <cstddef>

#include "kernels/optimizers/adam/adam.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizers/adam/adam_host.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/optimizers/adam/adam_rule.h"
#include "kernels/optimizers/adamw/adamw_coefficients.h"
#include "kernels/optimizers/optimizer/elementwise.h"
#include "kernels/optimizers/optimizer/hyperparameters.h"
#include "kernels/optimizers/optimizer/rule_loop-inl.h"
#include "kernels/runtime/common/float_environment.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {
GEMINID_DEFINE_RULE_LOOP(AdamRule)
GEMINID_DEFINE_RULE_LOOP(AdamWRule)
}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {
namespace {

GEMINID_DEFINE_RULE_CALL(AdamRule)
GEMINID_DEFINE_RULE_CALL(AdamWRule)

template <typename Gradient>
Status SplitStep(const AdamWOptions& options, const ConstParameterArrays& o,
                 const GradientArray& gradient, size_t count, const ParameterArrays& n) {
  const auto* const g = static_cast<const Gradient*>(gradient.data);
  const SplitState new_state = {n.bfloat16, n.remainder, n.state[0], n.state[1]};
  if (o.bfloat16 == n.bfloat16) return AdamWSplitInPlace(options, new_state, g, count);
  return AdamWSplitOutOfPlace(options, {o.bfloat16, o.remainder, o.state[0], o.state[1]}, g, count,
                              new_state);
}

Status MasterStep(const AdamWOptions& options, const ConstParameterArrays& o,
                  const GradientArray& gradient, size_t count, const ParameterArrays& n) {
  const auto* const g = static_cast<const float*>(gradient.data);
  const MasterState new_state = {n.master, n.state[0], n.state[1]};
  if (o.master == n.master) return AdamWMasterInPlace(options, new_state, g, count);
  return AdamWMasterOutOfPlace(options, {o.master, o.state[0], o.state[1]}, g, count, new_state);
}

}  // namespace

HWY_NOINLINE Status MakeRule(const AdamWOptions& options, AdamRule* rule) {
  AdamWCoefficients k;
  const Status status = DeriveAdamWCoefficients(options, &k);
  const auto weight_decay = static_cast<float>(options.weight_decay);
  if (status != Status::kOk || !std::isfinite(weight_decay)) return Status::kInvalidParameter;
  *rule = {k, weight_decay};
  return Status::kOk;
}

HWY_NOINLINE Status MakeRule(const AdamWOptions& options, AdamWRule* rule) {
  return DeriveAdamWCoefficients(options, &rule->k);
}

Status AdamStep(const AdamWOptions& options, const ConstParameterArrays& old_arrays,
                const GradientArray& gradient, size_t count, const ParameterArrays& new_arrays) {
  const ScopedFloatEnvironment environment;
  AdamRule rule;
  const Status status = MakeRule(options, &rule);
  if (status != Status::kOk) return status;
  return StepElements(CallOf(rule), old_arrays, gradient, count, new_arrays);
}

// The forms that kernels/adamw has a loop for go there: the same bits, and a quarter faster.
Status AdamWStep(const AdamWOptions& options, const ConstParameterArrays& old_arrays,
                 const GradientArray& gradient, size_t count, const ParameterArrays& new_arrays) {
  const ScopedFloatEnvironment environment;
  AdamWRule rule;
  Status status = MakeRule(options, &rule);
  if (status == Status::kOk) {
    status = CheckStepArrays(old_arrays, gradient, count, AdamWRule::kStates, new_arrays);
  }
  if (status != Status::kOk) return status;
  const bool fp32 = gradient.type == GradientType::kFloat;
  if (new_arrays.form == WeightForm::kSplit && fp32) {
    return SplitStep<float>(options, old_arrays, gradient, count, new_arrays);
  }
  if (new_arrays.form == WeightForm::kSplit && gradient.type == GradientType::kBFloat16) {
    return SplitStep<BFloat16>(options, old_arrays, gradient, count, new_arrays);
  }
  if (new_arrays.form == WeightForm::kFloat && fp32) {
    return MasterStep(options, old_arrays, gradient, count, new_arrays);
  }
  return StepElements(CallOf(rule), old_arrays, gradient, count, new_arrays);
}

}  // namespace geminid::kernels
#endif  // HWY_ONCE
