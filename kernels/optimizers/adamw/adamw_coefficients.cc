#include "kernels/optimizers/adamw/adamw_coefficients.h"

#include <cmath>
#include <cstdint>

#include "kernels/optimizers/step/hyperparameters.h"

namespace geminid::kernels {
namespace {

// Written so that a NaN fails.
bool InRange(const AdamWOptions& o) {
  return o.learning_rate >= 0 && o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1 &&
         o.epsilon > 0 && o.weight_decay >= 0 && o.step >= 1;
}

}  // namespace

Status DeriveAdamWCoefficients(const AdamWOptions& options, AdamWCoefficients* coefficients) {
  if (!InRange(options)) return Status::kInvalidParameter;
  const double correction1 = 1.0 - Power(options.beta1, options.step);
  const double correction2 = 1.0 - Power(options.beta2, options.step);
  const AdamWCoefficients k = {
      .grad_scale = static_cast<float>(options.grad_scale),
      .beta1 = static_cast<float>(options.beta1),
      .one_minus_beta1 = static_cast<float>(1.0 - options.beta1),
      .beta2 = static_cast<float>(options.beta2),
      .one_minus_beta2 = static_cast<float>(1.0 - options.beta2),
      .step_size = static_cast<float>(options.learning_rate / correction1),
      .correction2 = static_cast<float>(1.0 / std::sqrt(correction2)),
      .epsilon = static_cast<float>(options.epsilon),
      .decay_rate = static_cast<float>(options.learning_rate * options.weight_decay),
  };
  const bool finite = IsGradScale(k.grad_scale) && std::isfinite(k.step_size) &&
                      std::isfinite(k.correction2) && std::isfinite(k.epsilon) &&
                      std::isfinite(k.decay_rate);
  if (!finite || k.epsilon == 0.0f) return Status::kInvalidParameter;
  *coefficients = k;
  return Status::kOk;
}

Status CheckAdamWOptions(const AdamWOptions& options) {
  AdamWCoefficients unused;
  return DeriveAdamWCoefficients(options, &unused);
}

}  // namespace geminid::kernels
