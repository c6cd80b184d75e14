#ifndef GEMINID_KERNELS_OPTIMIZERS_ADAM_ADAM_CUDA_H_
#define GEMINID_KERNELS_OPTIMIZERS_ADAM_ADAM_CUDA_H_

#include <cstddef>

#include "kernels/optimizers/adamw/adamw.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/tensor.h"

// AdamStep and AdamWStep (kernels/optimizers/adam/adam.h) on a GPU, with their bits.
namespace geminid::kernels {

Status AdamStepCuda(const AdamWOptions& options, const CudaTensor* tensors, size_t tensor_count,
                    CudaStream stream);
Status AdamWStepCuda(const AdamWOptions& options, const CudaTensor* tensors, size_t tensor_count,
                     CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_ADAM_ADAM_CUDA_H_
