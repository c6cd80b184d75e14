#ifndef GEMINID_KERNELS_SGD_SGD_CUDA_H_
#define GEMINID_KERNELS_SGD_SGD_CUDA_H_

#include <cstddef>

#include "kernels/common/status.h"
#include "kernels/cuda/tensor.h"
#include "kernels/sgd/sgd.h"

namespace geminid::kernels {

// SgdStep (kernels/sgd/sgd.h) on a GPU, with its bits.
Status SgdStepCuda(const SgdOptions& options, const CudaTensor* tensors, size_t tensor_count,
                   CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_SGD_SGD_CUDA_H_
