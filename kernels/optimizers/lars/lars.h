#ifndef GEMINID_KERNELS_OPTIMIZERS_LARS_LARS_H_
#define GEMINID_KERNELS_OPTIMIZERS_LARS_LARS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/optimizers/step/parameter_arrays.h"
#include "kernels/runtime/common/status.h"

// LARS, "Large Batch Training of Convolutional Networks" (You et al., 2017), with the learning
// rate outside of the momentum, so that a schedule acts at once:
//
//   g     = grad_scale * gradient
//   b'    = momentum b + trust (g + weight_decay w)
//   w'    = w - learning_rate b'
//   trust = trust_coefficient ||w|| / (||g|| + weight_decay ||w|| + epsilon), norms over the tensor
//
// The trust is at most trust_limit, so that a vanishing gradient does not make an unbounded step.
// It is 1 where ||w|| or ||g|| is 0, so that a tensor that starts at 0 can leave it.
//
// State array: b. A step has two passes: LarsAddNorms over all of a tensor, wherever its parts are,
// then LarsApply over each part. Arithmetic, forms, threads and NaN as in
// kernels/optimizers/step/elementwise.h.
namespace geminid::kernels {

struct LarsOptions {
  double learning_rate = 1.0;        // >= 0
  double momentum = 0.9;             // [0, 1)
  double weight_decay = 0.0;         // >= 0
  double trust_coefficient = 0.001;  // > 0
  double trust_limit = 50.0;         // > 0
  double epsilon = 0.0;              // >= 0
  uint64_t step = 1;                 // >= 1; the rule does not use it
  double grad_scale = 1.0;           // finite
};

Status CheckLarsOptions(const LarsOptions& options);

// The norms of one tensor: sums of squares in float64, in the order of
// kernels/optimizers/step/elementwise.h.
struct LarsNorms {
  double weight_squares = 0.0;    // ||w||^2
  double gradient_squares = 0.0;  // ||g||^2
};

// Adds a part of a tensor to *norms.
Status LarsAddNorms(const LarsOptions& options, const ConstParameterArrays& arrays,
                    const GradientArray& gradient, size_t count, LarsNorms* norms);

double LarsTrust(const LarsOptions& options, const LarsNorms& norms);

// Steps a part of a tensor whose sums are complete.
Status LarsApply(const LarsOptions& options, const LarsNorms& norms,
                 const ConstParameterArrays& old_arrays, const GradientArray& gradient,
                 size_t count, const ParameterArrays& new_arrays);

// Both passes, for a whole tensor.
Status LarsStep(const LarsOptions& options, const ConstParameterArrays& old_arrays,
                const GradientArray& gradient, size_t count, const ParameterArrays& new_arrays);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_LARS_LARS_H_
