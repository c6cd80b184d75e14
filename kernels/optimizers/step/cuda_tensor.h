#ifndef GEMINID_KERNELS_OPTIMIZERS_STEP_CUDA_TENSOR_H_
#define GEMINID_KERNELS_OPTIMIZERS_STEP_CUDA_TENSOR_H_

#include <cstddef>

#include "kernels/optimizers/step/parameter_arrays.h"
#include "kernels/runtime/cuda/stream.h"

namespace geminid::kernels {

// A tensor, or part of one, in device memory that an optimizer updates on a GPU. The rules of
// CheckStepArrays hold. If all arrays are 16-byte aligned, they are accessed in words of 16 bytes.
// After an error a call has queued nothing.
struct CudaTensor {
  ConstParameterArrays old_arrays;
  GradientArray gradient;
  size_t count = 0;
  ParameterArrays new_arrays;
};

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_STEP_CUDA_TENSOR_H_
