#ifndef GEMINID_KERNELS_ADAGRAD_ADAGRAD_CUDA_H_
#define GEMINID_KERNELS_ADAGRAD_ADAGRAD_CUDA_H_

#include <cstddef>

#include "kernels/adagrad/adagrad.h"
#include "kernels/common/status.h"
#include "kernels/cuda/tensor.h"

namespace geminid::kernels {

// AdagradStep (kernels/adagrad/adagrad.h) on a GPU, with its bits.
Status AdagradStepCuda(const AdagradOptions& options, const CudaTensor* tensors,
                       size_t tensor_count, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_ADAGRAD_ADAGRAD_CUDA_H_
