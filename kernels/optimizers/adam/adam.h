#ifndef GEMINID_KERNELS_OPTIMIZERS_ADAM_ADAM_H_
#define GEMINID_KERNELS_OPTIMIZERS_ADAM_ADAM_H_

#include <cstddef>

#include "kernels/optimizers/adamw/adamw.h"
#include "kernels/optimizers/step/parameter_arrays.h"
#include "kernels/runtime/common/status.h"

// Adam, "Adam: A Method for Stochastic Optimization" (Kingma and Ba, 2015), over every form of
// parameters and gradients. It differs from AdamW (kernels/optimizers/adamw/adamw.h) in its weight
// decay, which is a penalty in the gradient and so goes through the moments:
//
//   g  = grad_scale * gradient + weight_decay w
//   m', v' as AdamW;   w' = w - c1 m' / (c2 sqrt(v') + epsilon)
//
// State arrays: m, v. Arithmetic, forms, threads and NaN as in
// kernels/optimizers/step/elementwise.h.
namespace geminid::kernels {

Status AdamStep(const AdamWOptions& options, const ConstParameterArrays& old_arrays,
                const GradientArray& gradient, size_t count, const ParameterArrays& new_arrays);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_ADAM_ADAM_H_
