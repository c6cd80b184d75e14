#include <cmath>
#include <cstddef>

#include "kernels/optimizers/sgd/sgd.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizers/sgd/sgd_host.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/optimizers/sgd/sgd_rule.h"
#include "kernels/optimizers/step/elementwise.h"
#include "kernels/optimizers/step/hyperparameters.h"
#include "kernels/optimizers/step/rule_loop-inl.h"
#include "kernels/runtime/common/float_environment.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {
GEMINID_DEFINE_RULE_LOOP(SgdRule)
GEMINID_DEFINE_RULE_LOOP(MomentumRule)
}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {
namespace {

GEMINID_DEFINE_RULE_CALL(SgdRule)
GEMINID_DEFINE_RULE_CALL(MomentumRule)

bool InRange(const SgdOptions& o) {
  const bool nesterov_fits = !o.nesterov || (o.momentum > 0 && o.dampening == 0);
  return o.learning_rate >= 0 && IsFraction(o.momentum) && o.dampening >= 0 && o.dampening <= 1 &&
         o.weight_decay >= 0 && nesterov_fits && o.step >= 1;
}

}  // namespace

HWY_NOINLINE Status MakeCoefficients(const SgdOptions& o, SgdCoefficients* coefficients) {
  if (!InRange(o)) return Status::kInvalidParameter;
  const bool first = o.step == 1;
  const SgdCoefficients k = {
      .grad_scale = static_cast<float>(o.grad_scale),
      .early_decay = static_cast<float>(o.decay_after_momentum ? 0.0 : o.weight_decay),
      .late_decay = static_cast<float>(o.decay_after_momentum ? o.weight_decay : 0.0),
      .kept = static_cast<float>(first ? 0.0 : o.momentum),
      .added = static_cast<float>(first ? 1.0 : 1.0 - o.dampening),
      .ahead = o.nesterov ? 1.0F : 0.0F,
      .buffer = static_cast<float>(o.nesterov ? o.momentum : 1.0),
      .learning_rate = static_cast<float>(o.learning_rate),
  };
  if (!IsGradScale(k.grad_scale) || !AllFinite({k.early_decay, k.late_decay, k.learning_rate})) {
    return Status::kInvalidParameter;
  }
  *coefficients = k;
  return Status::kOk;
}

Status CheckSgdOptions(const SgdOptions& options) {
  SgdCoefficients unused;
  return MakeCoefficients(options, &unused);
}

Status SgdStep(const SgdOptions& options, const ConstParameterArrays& old_arrays,
               const GradientArray& gradient, size_t count, const ParameterArrays& new_arrays) {
  const ScopedFloatEnvironment environment;
  SgdCoefficients k;
  const Status status = MakeCoefficients(options, &k);
  if (status != Status::kOk) return status;
  const SgdRule plain = {k};
  const MomentumRule momentum = {k};
  const RuleCall call = SgdStateArrays(options) == 0 ? CallOf(plain) : CallOf(momentum);
  return StepElements(call, old_arrays, gradient, count, new_arrays);
}

}  // namespace geminid::kernels
#endif  // HWY_ONCE
