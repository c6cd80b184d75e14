#ifndef GEMINID_KERNELS_OPTIMIZERS_STEP_CUDA_TENSOR_H_
#define GEMINID_KERNELS_OPTIMIZERS_STEP_CUDA_TENSOR_H_

#include <cstddef>

#include "kernels/optimizers/step/parameter_arrays.h"
#include "kernels/runtime/cuda/stream.h"

namespace geminid::kernels {

// A tensor, or part of one, in device memory that an optimizer updates on a GPU. The rules of
// CheckStepArrays hold. If all arrays are 16-byte aligned, they are accessed in words of 16 bytes.
//
// The tensors of one call have one form and one type of gradients (else kInvalidShape) and do not
// overlap each other. A call reads the list before it returns; after an error it has queued
// nothing. About twenty tensors make one launch, so pass many small ones in one call.
struct CudaTensor {
  ConstParameterArrays old_arrays;
  GradientArray gradient;
  size_t count = 0;
  ParameterArrays new_arrays;
};

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_STEP_CUDA_TENSOR_H_
