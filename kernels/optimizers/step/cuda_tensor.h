#ifndef GEMINID_KERNELS_OPTIMIZERS_STEP_CUDA_TENSOR_H_
#define GEMINID_KERNELS_OPTIMIZERS_STEP_CUDA_TENSOR_H_

#include <cstddef>

#include "kernels/optimizers/step/parameter_arrays.h"
#include "kernels/runtime/cuda/stream.h"

namespace geminid::kernels {

// What an optimizer updates on a GPU: a tensor, or part of one, in device memory. The rules of
// CheckStepArrays hold. Where all arrays lie on 16 bytes they are accessed in words of 16 bytes.
//
// The tensors of one call have one form and one type of gradients (else kInvalidShape) and do not
// overlap each other. They are read before the call returns; an error is of the whole call, and
// nothing is queued then. Some twenty make one launch, so give many small ones at once.
struct CudaTensor {
  ConstParameterArrays old_arrays;
  GradientArray gradient;
  size_t count = 0;
  ParameterArrays new_arrays;
};

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_STEP_CUDA_TENSOR_H_
