// geminid_optimizer: one struct for the options of all optimizers.
#ifndef GEMINID_CLIENT_C_API_OPTIMIZER_H_
#define GEMINID_CLIENT_C_API_OPTIMIZER_H_

#include "absl/status/statusor.h"
#include "geminid/c_api.h"
#include "geminid/optimizer.h"

namespace geminid::c_api {

// AdamW if `given` is null.
absl::StatusOr<zero::Optimizer> ToOptimizer(const geminid_optimizer* given);

}  // namespace geminid::c_api

#endif  // GEMINID_CLIENT_C_API_OPTIMIZER_H_
