#ifndef GEMINID_KERNELS_LION_LION_CUDA_H_
#define GEMINID_KERNELS_LION_LION_CUDA_H_

#include <cstddef>

#include "kernels/common/status.h"
#include "kernels/cuda/tensor.h"
#include "kernels/lion/lion.h"

namespace geminid::kernels {

// LionStep (kernels/lion/lion.h) on a GPU, with its bits.
Status LionStepCuda(const LionOptions& options, const CudaTensor* tensors, size_t tensor_count,
                    CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_LION_LION_CUDA_H_
