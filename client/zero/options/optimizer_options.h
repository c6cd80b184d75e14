// Translates the public options of optimizers to those of the kernels.
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

// Bytes of the tensor state, which every rank has in full, for `tensors` tensors with `factors`
// factors in all: two sums per tensor, and the factors. 0 for optimizers without sums over tensors.
uint64_t TensorStateBytes(const kernels::OptimizerOptions& options, uint64_t tensors,
                          uint64_t factors);
// Such an optimizer steps its orthogonal parameters as whole matrices.
inline bool IsMuon(const Optimizer& optimizer) {
  return std::holds_alternative<MuonOptions>(optimizer);
}

// Whether the optimizer steps this parameter as whole matrices.
inline bool IsMatrix(const Parameter& parameter, const Optimizer& optimizer) {
  return IsMuon(optimizer) && parameter.trainable && parameter.orthogonal;
}

// Whether a step's result depends on the number of steps before it.
bool CountsUpdates(const kernels::OptimizerOptions& options);

// The optimizer with the group's own options. INVALID_ARGUMENT names an option that is out of
// range, that the optimizer does not have, or that would need other state.
absl::StatusOr<Optimizer> WithOwn(Optimizer optimizer, const Engine::GroupInput& group);

// How many sums a step computes for each tensor; see kernels/optimizers/sharded_step.h.
inline constexpr uint64_t kSumsPerTensor = 2;

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_OPTIONS_OPTIMIZER_OPTIONS_H_
