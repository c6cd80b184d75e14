#ifndef GEMINID_KERNELS_OPTIMIZERS_SGD_SGD_H_
#define GEMINID_KERNELS_OPTIMIZERS_SGD_SGD_H_

#include <cstddef>
#include <cstdint>

#include "kernels/optimizers/step/parameter_arrays.h"
#include "kernels/runtime/common/status.h"

// Stochastic gradient descent with momentum, after Sutskever et al., "On the importance of
// initialization and momentum in deep learning" (2013). Here the learning rate is outside of the
// momentum:
//
//   g  = grad_scale * gradient + weight_decay w     (the decay here unless decay_after_momentum)
//   b' = momentum b + (1 - dampening) g;            b' = g at step 1
//   d  = g + momentum b' with nesterov, else b'     (+ weight_decay w if decay_after_momentum)
//   w' = w - learning_rate d
//
// State array: b; none if momentum is 0, where b' = g always. Arithmetic, forms, threads and NaN as
// in kernels/optimizers/step/elementwise.h.
namespace geminid::kernels {

struct SgdOptions {
  double learning_rate = 0.1;  // >= 0
  double momentum = 0.0;       // [0, 1)
  double dampening = 0.0;      // [0, 1]
  double weight_decay = 0.0;   // >= 0
  bool nesterov = false;       // needs momentum > 0 and dampening 0
  bool decay_after_momentum = false;
  uint64_t step = 1;        // >= 1
  double grad_scale = 1.0;  // finite or NaN
};

Status CheckSgdOptions(const SgdOptions& options);

constexpr int SgdStateArrays(const SgdOptions& options) { return options.momentum != 0 ? 1 : 0; }

Status SgdStep(const SgdOptions& options, const ConstParameterArrays& old_arrays,
               const GradientArray& gradient, size_t count, const ParameterArrays& new_arrays);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_SGD_SGD_H_
