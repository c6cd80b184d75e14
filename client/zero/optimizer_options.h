// The public options of optimizers as the kernels take them.
#ifndef GEMINID_CLIENT_ZERO_OPTIMIZER_OPTIONS_H_
#define GEMINID_CLIENT_ZERO_OPTIMIZER_OPTIONS_H_

#include <cstdint>

#include "geminid/optimizer.h"
#include "kernels/optimizers/optimizer.h"

namespace geminid::zero {

kernels::OptimizerOptions ToKernel(const Optimizer& optimizer);

// What every rank keeps whole for `tensors` tensors with `factors` factors in all: two sums for
// each, and the factors. 0 for optimizers that need no sums over tensors.
uint64_t TensorStateBytes(const kernels::OptimizerOptions& options, uint64_t tensors,
                          uint64_t factors);
// The sums that a step finds of each tensor; kernels/optimizers/sharded_step.h.
inline constexpr uint64_t kSumsPerTensor = 2;

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_OPTIMIZER_OPTIONS_H_
