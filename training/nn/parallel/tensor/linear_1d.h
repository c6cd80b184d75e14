// The linear layer that is sharded along one axis: by the rows of W (a first layer) or by its
// columns (a second layer). See parallel_linear.h.
#ifndef GEMINID_TRAINING_NN_PARALLEL_TENSOR_LINEAR_1D_H_
#define GEMINID_TRAINING_NN_PARALLEL_TENSOR_LINEAR_1D_H_

#include <memory>

#include "training/nn/parallel/tensor/parallel_linear.h"

namespace geminid::collectives {

std::unique_ptr<ParallelLinear> MakeLinear1D(TensorGroups& groups, const LinearOptions& options,
                                             const LinearBlocks& blocks, LinearScratch& scratch);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_TENSOR_LINEAR_1D_H_
