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
#include "kernels/optimizers/step/elementwise.h"
#include "kernels/optimizers/step/hyperparameters.h"
#include "kernels/optimizers/step/rule_loop-inl.h"
#include "kernels/runtime/common/float_environment.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {
GEMINID_DEFINE_RULE_LOOP(AdamRule)
}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {
namespace {

GEMINID_DEFINE_RULE_CALL(AdamRule)

}  // namespace

HWY_NOINLINE Status MakeRule(const AdamWOptions& options, AdamRule* rule) {
  AdamWCoefficients k;
  const Status status = DeriveAdamWCoefficients(options, &k);
  const auto weight_decay = static_cast<float>(options.weight_decay);
  if (status != Status::kOk || !std::isfinite(weight_decay)) return Status::kInvalidParameter;
  *rule = {k, weight_decay};
  return Status::kOk;
}

Status AdamStep(const AdamWOptions& options, const ConstParameterArrays& old_arrays,
                const GradientArray& gradient, size_t count, const ParameterArrays& new_arrays) {
  const ScopedFloatEnvironment environment;
  AdamRule rule;
  const Status status = MakeRule(options, &rule);
  if (status != Status::kOk) return status;
  return StepElements(CallOf(rule), old_arrays, gradient, count, new_arrays);
}

}  // namespace geminid::kernels
#endif  // HWY_ONCE
