#include <cmath>
#include <cstddef>

#include "kernels/optimizers/lion/lion.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizers/lion/lion_host.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/optimizers/lion/lion_rule.h"
#include "kernels/optimizers/step/elementwise.h"
#include "kernels/optimizers/step/hyperparameters.h"
#include "kernels/optimizers/step/rule_loop-inl.h"
#include "kernels/runtime/common/float_environment.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {
GEMINID_DEFINE_RULE_LOOP(LionRule)
}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {
namespace {

GEMINID_DEFINE_RULE_CALL(LionRule)

bool InRange(const LionOptions& o) {
  return o.learning_rate >= 0 && IsFraction(o.beta1) && IsFraction(o.beta2) &&
         o.weight_decay >= 0 && o.step >= 1;
}

}  // namespace

HWY_NOINLINE Status MakeRule(const LionOptions& o, LionRule* rule) {
  if (!InRange(o)) return Status::kInvalidParameter;
  const LionRule r = {
      .grad_scale = static_cast<float>(o.grad_scale),
      .beta1 = static_cast<float>(o.beta1),
      .one_minus_beta1 = static_cast<float>(1.0 - o.beta1),
      .beta2 = static_cast<float>(o.beta2),
      .one_minus_beta2 = static_cast<float>(1.0 - o.beta2),
      .learning_rate = static_cast<float>(o.learning_rate),
      .decay_rate = static_cast<float>(o.learning_rate * o.weight_decay),
  };
  if (!IsGradScale(r.grad_scale) || !AllFinite({r.learning_rate, r.decay_rate})) {
    return Status::kInvalidParameter;
  }
  *rule = r;
  return Status::kOk;
}

Status CheckLionOptions(const LionOptions& options) {
  LionRule unused;
  return MakeRule(options, &unused);
}

Status LionStep(const LionOptions& options, const ConstParameterArrays& old_arrays,
                const GradientArray& gradient, size_t count, const ParameterArrays& new_arrays) {
  const ScopedFloatEnvironment environment;
  LionRule rule;
  const Status status = MakeRule(options, &rule);
  if (status != Status::kOk) return status;
  return StepElements(CallOf(rule), old_arrays, gradient, count, new_arrays);
}

}  // namespace geminid::kernels
#endif  // HWY_ONCE
