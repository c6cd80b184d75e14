#ifndef GEMINID_KERNELS_OPTIMIZERS_ADAMW_ADAMW_COEFFICIENTS_H_
#define GEMINID_KERNELS_OPTIMIZERS_ADAMW_ADAMW_COEFFICIENTS_H_

#include "kernels/optimizers/adamw/adamw.h"
#include "kernels/runtime/common/status.h"

namespace geminid::kernels {

// The numbers that one update derives from the options, rounded once from float64. Every
// implementation of AdamW starts from them, so their bias corrections cannot differ.
struct AdamWCoefficients {
  float grad_scale;
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float step_size;    // learning_rate / (1 - beta1^step)
  float correction2;  // 1 / sqrt(1 - beta2^step)
  float epsilon;
  float decay_rate;  // learning_rate * weight_decay
};

// Uses +, -, *, / and sqrt only, whose float64 results are the same on every machine (std::pow's
// are not). kInvalidParameter as CheckAdamWOptions says; *coefficients is then unchanged.
Status DeriveAdamWCoefficients(const AdamWOptions& options, AdamWCoefficients* coefficients);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_ADAMW_ADAMW_COEFFICIENTS_H_
