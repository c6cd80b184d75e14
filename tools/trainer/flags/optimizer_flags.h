// The flags of the optimizer and its hyperparameters.
#ifndef GEMINID_TOOLS_TRAINER_FLAGS_OPTIMIZER_FLAGS_H_
#define GEMINID_TOOLS_TRAINER_FLAGS_OPTIMIZER_FLAGS_H_

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "geminid/data_type.h"
#include "geminid/optimizer.h"
#include "tools/trainer/flags/flags.h"

namespace geminid::trainer {

// --optimizer, --state-dtype, and the hyperparameters: each of these belongs to some optimizers
// only.
std::span<const FlagSpec> OptimizerFlags();
bool IsHyperparameter(const FlagSpec& flag);

// The value of one of the flags that an optimizer has.
struct OptimizerValue {
  const char* flag;
  double number = 0;
  bool is_switch = false;  // on unless the number is 0
};
std::vector<OptimizerValue> OptimizerValues(zero::Optimizer optimizer);

// INVALID_ARGUMENT names the flag: an unknown optimizer, a value out of range, or a hyperparameter
// of another optimizer.
absl::StatusOr<zero::Optimizer> ParseOptimizer(const Flags& flags);

// --state-dtype. INVALID_ARGUMENT names the flag: an unknown type, or an optimizer without arrays.
absl::StatusOr<zero::DataType> ParseStateType(const Flags& flags, const zero::Optimizer& optimizer);

// The peak of the learning rate if --lr is not given.
double UsualLearningRate(const zero::Optimizer& optimizer);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_FLAGS_OPTIMIZER_FLAGS_H_
