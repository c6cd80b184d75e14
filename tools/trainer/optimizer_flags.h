// The flags of the optimizer and its hyperparameters.
#ifndef GEMINID_TOOLS_TRAINER_OPTIMIZER_FLAGS_H_
#define GEMINID_TOOLS_TRAINER_OPTIMIZER_FLAGS_H_

#include <span>

#include "absl/status/statusor.h"
#include "geminid/optimizer.h"
#include "tools/trainer/flags.h"

namespace geminid::trainer {

// --optimizer, and the hyperparameters: each belongs to some optimizers only.
std::span<const FlagSpec> OptimizerFlags();

// INVALID_ARGUMENT names the flag: an unknown optimizer, a value out of range, or a hyperparameter
// of another optimizer.
absl::StatusOr<zero::Optimizer> ParseOptimizer(const Flags& flags);

// The peak of the learning rate without --lr.
double UsualLearningRate(const zero::Optimizer& optimizer);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_OPTIMIZER_FLAGS_H_
