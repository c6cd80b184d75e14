// How much a step's separate gradients differ from their mean: the gradient noise is told from it
// (training/goodput/noise_scale.h).
#ifndef GEMINID_CLIENT_ZERO_STEP_STEP_GRADIENTS_H_
#define GEMINID_CLIENT_ZERO_STEP_STEP_GRADIENTS_H_

#include <cstdint>

namespace geminid::zero {

// The gradients that a step is the mean of: one of each rank and micro-batch, before any of them is
// added to another. Frozen parameters count in neither square, those without a gradient as zeros.
// Of the gradients as the loss has them: divided by loss_scale(), and not clipped.
struct StepGradients {
  uint64_t count = 0;         // 0: they were not measured
  double mean_square = 0;     // the mean of their squared norms; not finite after an overflow
  double square_of_mean = 0;  // the squared norm of their mean
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STEP_STEP_GRADIENTS_H_
