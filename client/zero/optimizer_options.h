// The public options of optimizers as the kernels take them.
#ifndef GEMINID_CLIENT_ZERO_OPTIMIZER_OPTIONS_H_
#define GEMINID_CLIENT_ZERO_OPTIMIZER_OPTIONS_H_

#include "geminid/optimizer.h"
#include "kernels/optimizers/optimizer/optimizer.h"

namespace geminid::zero {

kernels::OptimizerOptions ToKernel(const Optimizer& optimizer);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_OPTIMIZER_OPTIONS_H_
