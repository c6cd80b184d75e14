// The ranges of the optimizers' hyperparameters, for errors that name the one that is wrong.
#ifndef GEMINID_CLIENT_ZERO_OPTIONS_OPTIMIZER_RANGES_H_
#define GEMINID_CLIENT_ZERO_OPTIONS_OPTIMIZER_RANGES_H_

#include "absl/status/status.h"
#include "geminid/optimizer.h"

namespace geminid::zero {

// INVALID_ARGUMENT: "beta1 is 1; with lion it must be from 0 to below 1", for the first
// hyperparameter that is out of its range, or for two that contradict each other. The kernels check
// the same ranges; they also refuse numbers whose products are infinite in fp32.
absl::Status CheckRanges(const Optimizer& optimizer);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_OPTIONS_OPTIMIZER_RANGES_H_
