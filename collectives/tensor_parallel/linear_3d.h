// Three gathers and scatters, each along an axis of its own of a cube of ranks. See
// parallel_linear.h.
#ifndef GEMINID_COLLECTIVES_TENSOR_PARALLEL_LINEAR_3D_H_
#define GEMINID_COLLECTIVES_TENSOR_PARALLEL_LINEAR_3D_H_

#include <memory>

#include "collectives/tensor_parallel/parallel_linear.h"

namespace geminid::collectives {

std::unique_ptr<ParallelLinear> MakeLinear3D(TensorGroups& groups, const LinearOptions& options,
                                             const LinearBlocks& blocks, LinearScratch& scratch);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TENSOR_PARALLEL_LINEAR_3D_H_
