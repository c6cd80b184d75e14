#include <cstddef>

#include "kernels/optimizers/adamw/adamw.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizers/adamw/adamw_step_host.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/optimizers/adamw/adamw_rule.h"
#include "kernels/optimizers/adamw/small_moments.h"
#include "kernels/optimizers/step/elementwise.h"
#include "kernels/optimizers/step/rule_loop-inl.h"
#include "kernels/runtime/common/float_environment.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {
GEMINID_DEFINE_RULE_LOOP(AdamWRule)
}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {
namespace {

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

HWY_NOINLINE Status MakeRule(const AdamWOptions& options, AdamWRule* rule) {
  return DeriveAdamWCoefficients(options, &rule->k);
}

// Forms that have a loop of their own (adamw_host.cc, small_moments_host.cc) use it: it gives the
// same bits and is a quarter faster.
Status AdamWStep(const AdamWOptions& options, const ConstParameterArrays& old_arrays,
                 const GradientArray& gradient, size_t count, const ParameterArrays& new_arrays) {
  const ScopedFloatEnvironment environment;
  AdamWRule rule;
  Status status = MakeRule(options, &rule);
  if (status == Status::kOk) {
    status = CheckStepArrays(old_arrays, gradient, count, AdamWRule::kStates, new_arrays);
  }
  if (status != Status::kOk) return status;
  if (HasSmallMomentsLoop(new_arrays, gradient)) {
    if (count > 0) AdamWSmallMoments(rule.k, old_arrays, gradient, count, new_arrays);
    return Status::kOk;
  }
  if (new_arrays.state_form != StateForm::kFloat) {
    return StepElements(CallOf(rule), old_arrays, gradient, count, new_arrays);
  }
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
