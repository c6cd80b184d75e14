// Three gathers and scatters, each along another axis of a cube of ranks. See parallel_linear.h.
#ifndef GEMINID_TRAINING_NN_PARALLEL_TENSOR_LINEAR_3D_H_
#define GEMINID_TRAINING_NN_PARALLEL_TENSOR_LINEAR_3D_H_

#include <memory>

#include "training/nn/parallel/tensor/parallel_linear.h"

namespace geminid::collectives {

template <typename T>
std::unique_ptr<ParallelLinear<T>> MakeLinear3D(TensorGroups& groups, const LinearOptions& options,
                                                const LinearBlocks& blocks, LinearScratch& scratch);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_TENSOR_LINEAR_3D_H_
