#ifndef GEMINID_KERNELS_OPTIMIZERS_LAMB_LAMB_H_
#define GEMINID_KERNELS_OPTIMIZERS_LAMB_LAMB_H_

#include <cstddef>
#include <cstdint>

#include "kernels/optimizers/step/parameter_arrays.h"
#include "kernels/runtime/common/status.h"

// LAMB, "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes" (You et al.,
// 2020), algorithm 2 with phi(z) = z:
//
//   g     = grad_scale * gradient / max(1, gradient_norm / max_grad_norm)
//   m'    = beta1 m + beta3 g,           beta3 = 1 - beta1, or 1 without grad_averaging
//   v'    = beta2 v + (1 - beta2) g^2
//   u     = c1 m' / (c2 sqrt(v') + epsilon) + weight_decay w
//   w'    = w - learning_rate trust u,   trust = ||w|| / ||u|| over the whole tensor
//   c1 = 1 / (1 - beta1^step), c2 = 1 / sqrt(1 - beta2^step); both 1 without bias_correction
//
// Unless `decoupled`, weight_decay w is added to g instead of u. The trust is 1 where a norm is 0
// and, unless `always_adapt` (NVLAMB), for tensors without weight decay.
//
// State arrays: m, v. A step has two passes: LambAddNorms over all of a tensor, wherever its parts
// are, then LambApply over each part. Arithmetic, forms, threads and NaN as in
// kernels/optimizers/step/elementwise.h.
namespace geminid::kernels {

struct LambOptions {
  double learning_rate = 1e-3;  // >= 0
  double beta1 = 0.9;           // [0, 1)
  double beta2 = 0.999;         // [0, 1)
  double epsilon = 1e-6;        // > 0, also as a float
  double weight_decay = 0.01;   // >= 0
  bool decoupled = true;
  bool bias_correction = true;
  bool grad_averaging = true;
  bool always_adapt = false;
  double max_grad_norm = 1.0;  // >= 0; 0: gradients are not normalised
  double gradient_norm = 0.0;  // >= 0: of grad_scale * gradient over all tensors of the model
  uint64_t step = 1;           // >= 1
  double grad_scale = 1.0;     // finite
};

Status CheckLambOptions(const LambOptions& options);

// The norms of one tensor: sums of squares in float64, in the order of
// kernels/optimizers/step/elementwise.h.
struct LambNorms {
  double weight_squares = 0.0;  // ||w||^2
  double update_squares = 0.0;  // ||u||^2
};

// Adds a part of a tensor to *norms. Reads weights, both states and gradient.
Status LambAddNorms(const LambOptions& options, const ConstParameterArrays& arrays,
                    const GradientArray& gradient, size_t count, LambNorms* norms);

double LambTrust(const LambOptions& options, const LambNorms& norms);

// Steps a part of a tensor whose sums are complete. Also kInvalidParameter if the rate, which is
// learning_rate trust, is not a finite float.
Status LambApply(const LambOptions& options, const LambNorms& norms,
                 const ConstParameterArrays& old_arrays, const GradientArray& gradient,
                 size_t count, const ParameterArrays& new_arrays);

// Both passes, for a whole tensor.
Status LambStep(const LambOptions& options, const ConstParameterArrays& old_arrays,
                const GradientArray& gradient, size_t count, const ParameterArrays& new_arrays);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_LAMB_LAMB_H_
