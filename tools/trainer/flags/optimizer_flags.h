// The flags of the optimizer and its hyperparameters.
#ifndef GEMINID_TOOLS_TRAINER_FLAGS_OPTIMIZER_FLAGS_H_
#define GEMINID_TOOLS_TRAINER_FLAGS_OPTIMIZER_FLAGS_H_

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "geminid/optimizer.h"
#include "tools/trainer/flags/flags.h"

namespace geminid::trainer {

// --optimizer, and the hyperparameters: each belongs to some optimizers only.
std::span<const FlagSpec> OptimizerFlags();

// The value of one of its flags that an optimizer has.
struct OptimizerValue {
  const char* flag;
  double number = 0;
  bool is_switch = false;  // on unless the number is 0
};
std::vector<OptimizerValue> OptimizerValues(zero::Optimizer optimizer);

// INVALID_ARGUMENT names the flag: an unknown optimizer, a value out of range, or a hyperparameter
// of another optimizer.
absl::StatusOr<zero::Optimizer> ParseOptimizer(const Flags& flags);

// The peak of the learning rate without --lr.
double UsualLearningRate(const zero::Optimizer& optimizer);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_FLAGS_OPTIMIZER_FLAGS_H_
