// Linear layers of 1D whose tokens are sharded, too, outside of the pair.
#ifndef GEMINID_TRAINING_NN_PARALLEL_TENSOR_LINEAR_1D_SEQUENCE_H_
#define GEMINID_TRAINING_NN_PARALLEL_TENSOR_LINEAR_1D_SEQUENCE_H_

#include <memory>

#include "training/nn/parallel/tensor/parallel_linear.h"

namespace geminid::collectives {

template <typename T>
std::unique_ptr<ParallelLinear<T>> MakeLinear1DSequence(TensorGroups& groups,
                                                        const LinearOptions& options,
                                                        const LinearBlocks& blocks,
                                                        LinearScratch& scratch);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_TENSOR_LINEAR_1D_SEQUENCE_H_
