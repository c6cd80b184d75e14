#ifndef GEMINID_KERNELS_OPTIMIZERS_LION_LION_H_
#define GEMINID_KERNELS_OPTIMIZERS_LION_LION_H_

#include <cstddef>
#include <cstdint>

#include "kernels/optimizers/step/parameter_arrays.h"
#include "kernels/runtime/common/status.h"

// Lion, "Symbolic Discovery of Optimization Algorithms" (Chen et al., 2023), algorithm 2:
//
//   g  = grad_scale * gradient
//   w' = w - learning_rate (sign(beta1 m + (1 - beta1) g) + weight_decay w),   sign(0) = 0
//   m' = beta2 m + (1 - beta2) g
//
// State array: m. Arithmetic, forms, threads and NaN as in
// kernels/optimizers/step/elementwise.h.
namespace geminid::kernels {

struct LionOptions {
  double learning_rate = 1e-4;  // >= 0
  double beta1 = 0.9;           // [0, 1)
  double beta2 = 0.99;          // [0, 1)
  double weight_decay = 0.0;    // >= 0
  uint64_t step = 1;            // >= 1; the rule does not use it
  double grad_scale = 1.0;      // finite or NaN
};

Status CheckLionOptions(const LionOptions& options);

Status LionStep(const LionOptions& options, const ConstParameterArrays& old_arrays,
                const GradientArray& gradient, size_t count, const ParameterArrays& new_arrays);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_LION_LION_H_
