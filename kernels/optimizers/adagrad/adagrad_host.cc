#include <cmath>
#include <cstddef>

#include "kernels/optimizers/adagrad/adagrad.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizers/adagrad/adagrad_host.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/optimizers/adagrad/adagrad_rule.h"
#include "kernels/optimizers/step/elementwise.h"
#include "kernels/optimizers/step/hyperparameters.h"
#include "kernels/optimizers/step/rule_loop-inl.h"
#include "kernels/runtime/common/float_environment.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {
GEMINID_DEFINE_RULE_LOOP(AdagradRule)
}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {
namespace {

GEMINID_DEFINE_RULE_CALL(AdagradRule)

bool InRange(const AdagradOptions& o) {
  return o.learning_rate >= 0 && o.rate_decay >= 0 && IsPositiveFloat(o.epsilon) &&
         o.weight_decay >= 0 && o.step >= 1;
}

}  // namespace

HWY_NOINLINE Status MakeRule(const AdagradOptions& o, AdagradRule* rule) {
  if (!InRange(o)) return Status::kInvalidParameter;
  const double slowing = 1.0 + static_cast<double>(o.step - 1) * o.rate_decay;
  const AdagradRule r = {
      .grad_scale = static_cast<float>(o.grad_scale),
      .weight_decay = static_cast<float>(o.weight_decay),
      .rate = static_cast<float>(o.learning_rate / slowing),
      .epsilon = static_cast<float>(o.epsilon),
  };
  const bool finite =
      IsGradScale(r.grad_scale) && AllFinite({r.weight_decay, r.rate}) && std::isfinite(slowing);
  if (!finite) return Status::kInvalidParameter;
  *rule = r;
  return Status::kOk;
}

Status CheckAdagradOptions(const AdagradOptions& options) {
  AdagradRule unused;
  return MakeRule(options, &unused);
}

Status AdagradStep(const AdagradOptions& options, const ConstParameterArrays& old_arrays,
                   const GradientArray& gradient, size_t count, const ParameterArrays& new_arrays) {
  const ScopedFloatEnvironment environment;
  AdagradRule rule;
  const Status status = MakeRule(options, &rule);
  if (status != Status::kOk) return status;
  return StepElements(CallOf(rule), old_arrays, gradient, count, new_arrays);
}

}  // namespace geminid::kernels
#endif  // HWY_ONCE
