// How much a step's separate gradients differ from their mean. The gradient noise scale is computed
// from it (training/goodput/noise_scale.h).
#ifndef GEMINID_CLIENT_ZERO_STEP_STEP_GRADIENTS_H_
#define GEMINID_CLIENT_ZERO_STEP_STEP_GRADIENTS_H_

#include <cstdint>

namespace geminid::zero {

// A step's gradient is the mean of these gradients: one of each rank and micro-batch, before any
// are added up. Frozen parameters do not count; parameters without a gradient count as zeros. The
// gradients are those of the loss: divided by loss_scale(), and not clipped.
struct StepGradients {
  uint64_t count = 0;         // 0: not measured
  double mean_square = 0;     // the mean of their squared norms; not finite after an overflow
  double square_of_mean = 0;  // the squared norm of their mean
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STEP_STEP_GRADIENTS_H_
