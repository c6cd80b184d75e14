#include <cmath>
#include <cstddef>

#include "kernels/optimizers/lars/lars.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizers/lars/lars_host.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/optimizers/lars/lars_rule.h"
#include "kernels/optimizers/step/elementwise.h"
#include "kernels/optimizers/step/hyperparameters.h"
#include "kernels/optimizers/step/rule_loop-inl.h"
#include "kernels/runtime/common/float_environment.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {
GEMINID_DEFINE_RULE_LOOP(LarsRule)
}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {
namespace {

GEMINID_DEFINE_RULE_CALL(LarsRule)

bool InRange(const LarsOptions& o) {
  return o.learning_rate >= 0 && IsFraction(o.momentum) && o.weight_decay >= 0 &&
         o.trust_coefficient > 0 && std::isfinite(o.trust_coefficient) && o.trust_limit > 0 &&
         std::isfinite(o.trust_limit) && o.epsilon >= 0 && std::isfinite(o.epsilon) && o.step >= 1;
}

}  // namespace

double LarsTrust(const LarsOptions& o, const LarsNorms& norms) {
  if (norms.weight_squares == 0 || norms.gradient_squares == 0) return 1.0;
  const double weight = std::sqrt(norms.weight_squares);
  const double gradient = std::sqrt(norms.gradient_squares);
  const double trust =
      o.trust_coefficient * weight / (gradient + o.weight_decay * weight + o.epsilon);
  return trust > o.trust_limit ? o.trust_limit : trust;  // a NaN stays one
}

HWY_NOINLINE Status MakeRule(const LarsOptions& o, const LarsNorms& norms, LarsRule* rule) {
  if (!InRange(o)) return Status::kInvalidParameter;
  const LarsRule r = {
      .grad_scale = static_cast<float>(o.grad_scale),
      .weight_decay = static_cast<float>(o.weight_decay),
      .trust = static_cast<float>(LarsTrust(o, norms)),
      .momentum = static_cast<float>(o.momentum),
      .learning_rate = static_cast<float>(o.learning_rate),
  };
  if (!AllFinite({r.grad_scale, r.weight_decay, r.trust, r.learning_rate})) {
    return Status::kInvalidParameter;
  }
  *rule = r;
  return Status::kOk;
}

Status CheckLarsOptions(const LarsOptions& options) {
  LarsRule unused;
  return MakeRule(options, LarsNorms(), &unused);
}

Status LarsAddNorms(const LarsOptions& options, const ConstParameterArrays& arrays,
                    const GradientArray& gradient, size_t count, LarsNorms* norms) {
  const ScopedFloatEnvironment environment;
  if (norms == nullptr) return Status::kNullPointer;
  Status status = CheckLarsOptions(options);
  if (status == Status::kOk) status = CheckReadArrays(arrays, gradient, count, 0);
  if (status != Status::kOk) return status;
  const ScaledGradientRule rule = {static_cast<float>(options.grad_scale)};
  MeasureElements(CallOf(rule), {.arrays = arrays, .gradient = gradient, .count = count},
                  {.result = &norms->gradient_squares, .weight = &norms->weight_squares});
  return Status::kOk;
}

Status LarsApply(const LarsOptions& options, const LarsNorms& norms,
                 const ConstParameterArrays& old_arrays, const GradientArray& gradient,
                 size_t count, const ParameterArrays& new_arrays) {
  const ScopedFloatEnvironment environment;
  LarsRule rule;
  const Status status = MakeRule(options, norms, &rule);
  if (status != Status::kOk) return status;
  return StepElements(CallOf(rule), old_arrays, gradient, count, new_arrays);
}

Status LarsStep(const LarsOptions& options, const ConstParameterArrays& old_arrays,
                const GradientArray& gradient, size_t count, const ParameterArrays& new_arrays) {
  const ScopedFloatEnvironment environment;
  LarsNorms norms;
  const Status status = LarsAddNorms(options, old_arrays, gradient, count, &norms);
  if (status != Status::kOk) return status;
  return LarsApply(options, norms, old_arrays, gradient, count, new_arrays);
}

}  // namespace geminid::kernels
#endif  // HWY_ONCE
