// One way of cutting: W by its rows (a first layer) or by its columns (a second one). See
// parallel_linear.h.
#ifndef GEMINID_COLLECTIVES_TENSOR_PARALLEL_LINEAR_1D_H_
#define GEMINID_COLLECTIVES_TENSOR_PARALLEL_LINEAR_1D_H_

#include <memory>

#include "collectives/tensor_parallel/parallel_linear.h"

namespace geminid::collectives {

std::unique_ptr<ParallelLinear> MakeLinear1D(TensorGroups& groups, const LinearOptions& options,
                                             const LinearBlocks& blocks, LinearScratch& scratch);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TENSOR_PARALLEL_LINEAR_1D_H_
