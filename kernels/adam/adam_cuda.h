#ifndef GEMINID_KERNELS_ADAM_ADAM_CUDA_H_
#define GEMINID_KERNELS_ADAM_ADAM_CUDA_H_

#include <cstddef>

#include "kernels/adamw/adamw.h"
#include "kernels/common/status.h"
#include "kernels/cuda/tensor.h"

// AdamStep and AdamWStep (kernels/adam/adam.h) on a GPU, with their bits.
namespace geminid::kernels {

Status AdamStepCuda(const AdamWOptions& options, const CudaTensor* tensors, size_t tensor_count,
                    CudaStream stream);
Status AdamWStepCuda(const AdamWOptions& options, const CudaTensor* tensors, size_t tensor_count,
                     CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_ADAM_ADAM_CUDA_H_
