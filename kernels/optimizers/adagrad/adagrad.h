#ifndef GEMINID_KERNELS_OPTIMIZERS_ADAGRAD_ADAGRAD_H_
#define GEMINID_KERNELS_OPTIMIZERS_ADAGRAD_ADAGRAD_H_

#include <cstddef>
#include <cstdint>

#include "kernels/optimizers/step/parameter_arrays.h"
#include "kernels/runtime/common/status.h"

// Adagrad, "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization" (Duchi et
// al., 2011), the diagonal form:
//
//   g  = grad_scale * gradient + weight_decay w
//   s' = s + g^2
//   w' = w - rate g / (sqrt(s') + epsilon),   rate = learning_rate / (1 + (step - 1) rate_decay)
//
// State array: s. Arithmetic, forms, threads and NaN as in
// kernels/optimizers/step/elementwise.h.
namespace geminid::kernels {

struct AdagradOptions {
  double learning_rate = 0.01;  // >= 0
  double rate_decay = 0.0;      // >= 0
  double epsilon = 1e-10;       // > 0, also as a float
  double weight_decay = 0.0;    // >= 0
  uint64_t step = 1;            // >= 1
  double grad_scale = 1.0;      // finite or NaN
};

Status CheckAdagradOptions(const AdagradOptions& options);

Status AdagradStep(const AdagradOptions& options, const ConstParameterArrays& old_arrays,
                   const GradientArray& gradient, size_t count, const ParameterArrays& new_arrays);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_ADAGRAD_ADAGRAD_H_
