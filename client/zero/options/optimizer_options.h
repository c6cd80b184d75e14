// The public options of optimizers as the kernels take them.
#ifndef GEMINID_CLIENT_ZERO_OPTIONS_OPTIMIZER_OPTIONS_H_
#define GEMINID_CLIENT_ZERO_OPTIONS_OPTIMIZER_OPTIONS_H_

#include <cstdint>
#include <variant>

#include "absl/status/statusor.h"
#include "geminid/optimizer.h"
#include "geminid/zero.h"
#include "kernels/optimizers/optimizer.h"

namespace geminid::zero {

kernels::OptimizerOptions ToKernel(const Optimizer& optimizer);

// What every rank keeps whole for `tensors` tensors with `factors` factors in all: two sums for
// each, and the factors. 0 for optimizers that need no sums over tensors.
uint64_t TensorStateBytes(const kernels::OptimizerOptions& options, uint64_t tensors,
                          uint64_t factors);
// Its orthogonal parameters are stepped as whole matrices.
inline bool IsMuon(const Optimizer& optimizer) {
  return std::holds_alternative<MuonOptions>(optimizer);
}

// A parameter that is stepped as whole matrices.
inline bool IsMatrix(const Parameter& parameter, const Optimizer& optimizer) {
  return IsMuon(optimizer) && parameter.trainable && parameter.orthogonal;
}

// Whether its step depends on how many there were before.
bool CountsUpdates(const kernels::OptimizerOptions& options);

// The optimizer with what a group has of its own. INVALID_ARGUMENT naming what is out of its range,
// what the optimizer does not have, or what would need other state.
absl::StatusOr<Optimizer> WithOwn(Optimizer optimizer, const Engine::GroupInput& group);

// The sums that a step finds of each tensor; kernels/optimizers/sharded_step.h.
inline constexpr uint64_t kSumsPerTensor = 2;

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_OPTIONS_OPTIMIZER_OPTIONS_H_
