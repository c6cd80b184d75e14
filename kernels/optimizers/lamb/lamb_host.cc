#include <cmath>
#include <cstddef>

#include "kernels/optimizers/lamb/lamb.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizers/lamb/lamb_host.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/optimizers/lamb/lamb_rule.h"
#include "kernels/optimizers/step/elementwise.h"
#include "kernels/optimizers/step/hyperparameters.h"
#include "kernels/optimizers/step/rule_loop-inl.h"
#include "kernels/runtime/common/float_environment.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {
GEMINID_DEFINE_RULE_LOOP(LambUpdateRule)
GEMINID_DEFINE_RULE_LOOP(LambRule)
}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {
namespace {

GEMINID_DEFINE_RULE_CALL(LambUpdateRule)
GEMINID_DEFINE_RULE_CALL(LambRule)

bool InRange(const LambOptions& o) {
  return o.learning_rate >= 0 && IsFraction(o.beta1) && IsFraction(o.beta2) &&
         IsPositiveFloat(o.epsilon) && o.weight_decay >= 0 && o.max_grad_norm >= 0 &&
         std::isfinite(o.max_grad_norm) && o.gradient_norm >= 0 && std::isfinite(o.gradient_norm) &&
         o.step >= 1;
}

HWY_NOINLINE Status MakeCoefficients(const LambOptions& o, LambCoefficients* coefficients) {
  if (!InRange(o)) return Status::kInvalidParameter;
  const bool normalise = o.max_grad_norm > 0 && o.gradient_norm > o.max_grad_norm;
  const double normaliser = normalise ? o.max_grad_norm / o.gradient_norm : 1.0;
  const double correction1 = o.bias_correction ? 1.0 - Power(o.beta1, o.step) : 1.0;
  const double correction2 = o.bias_correction ? 1.0 - Power(o.beta2, o.step) : 1.0;
  const LambCoefficients k = {
      .grad_scale = static_cast<float>(o.grad_scale * normaliser),
      .coupled_decay = static_cast<float>(o.decoupled ? 0.0 : o.weight_decay),
      .decoupled_decay = static_cast<float>(o.decoupled ? o.weight_decay : 0.0),
      .beta1 = static_cast<float>(o.beta1),
      .one_minus_beta1 = static_cast<float>(o.grad_averaging ? 1.0 - o.beta1 : 1.0),
      .beta2 = static_cast<float>(o.beta2),
      .one_minus_beta2 = static_cast<float>(1.0 - o.beta2),
      .step_size = static_cast<float>(1.0 / correction1),
      .correction2 = static_cast<float>(1.0 / std::sqrt(correction2)),
      .epsilon = static_cast<float>(o.epsilon),
  };
  const bool finite =
      AllFinite({k.grad_scale, k.coupled_decay, k.decoupled_decay, k.step_size, k.correction2});
  if (!finite) return Status::kInvalidParameter;
  *coefficients = k;
  return Status::kOk;
}

}  // namespace

HWY_NOINLINE Status MakeRule(const LambOptions& options, LambUpdateRule* rule) {
  return MakeCoefficients(options, &rule->k);
}

HWY_NOINLINE Status MakeRule(const LambOptions& options, const LambNorms& norms, LambRule* rule) {
  const auto rate = static_cast<float>(options.learning_rate * LambTrust(options, norms));
  if (!std::isfinite(rate)) return Status::kInvalidParameter;
  rule->rate = rate;
  return MakeCoefficients(options, &rule->k);
}

Status CheckLambOptions(const LambOptions& options) {
  LambRule unused;
  return MakeRule(options, LambNorms(), &unused);
}

double LambTrust(const LambOptions& options, const LambNorms& norms) {
  if (options.weight_decay == 0 && !options.always_adapt) return 1.0;
  if (norms.weight_squares == 0 || norms.update_squares == 0) return 1.0;
  return std::sqrt(norms.weight_squares) / std::sqrt(norms.update_squares);
}

Status LambAddNorms(const LambOptions& options, const ConstParameterArrays& arrays,
                    const GradientArray& gradient, size_t count, LambNorms* norms) {
  const ScopedFloatEnvironment environment;
  if (norms == nullptr) return Status::kNullPointer;
  LambUpdateRule rule;
  Status status = MakeRule(options, &rule);
  if (status == Status::kOk) {
    status = CheckReadArrays(arrays, gradient, count, LambUpdateRule::kStates);
  }
  if (status != Status::kOk) return status;
  MeasureElements(CallOf(rule), {.arrays = arrays, .gradient = gradient, .count = count},
                  {.result = &norms->update_squares, .weight = &norms->weight_squares});
  return Status::kOk;
}

Status LambApply(const LambOptions& options, const LambNorms& norms,
                 const ConstParameterArrays& old_arrays, const GradientArray& gradient,
                 size_t count, const ParameterArrays& new_arrays) {
  const ScopedFloatEnvironment environment;
  LambRule rule;
  const Status status = MakeRule(options, norms, &rule);
  if (status != Status::kOk) return status;
  return StepElements(CallOf(rule), old_arrays, gradient, count, new_arrays);
}

Status LambStep(const LambOptions& options, const ConstParameterArrays& old_arrays,
                const GradientArray& gradient, size_t count, const ParameterArrays& new_arrays) {
  const ScopedFloatEnvironment environment;
  LambNorms norms;
  const Status status = LambAddNorms(options, old_arrays, gradient, count, &norms);
  if (status != Status::kOk) return status;
  return LambApply(options, norms, old_arrays, gradient, count, new_arrays);
}

}  // namespace geminid::kernels
#endif  // HWY_ONCE
