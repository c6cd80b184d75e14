#ifndef GEMINID_KERNELS_OPTIMIZERS_ADAM_ADAM_CUDA_H_
#define GEMINID_KERNELS_OPTIMIZERS_ADAM_ADAM_CUDA_H_

#include "kernels/optimizers/adam/adam.h"
#include "kernels/optimizers/step/cuda_tensor.h"
#include "kernels/runtime/common/status.h"

namespace geminid::kernels {

// AdamStep (kernels/optimizers/adam/adam.h) on a GPU, with the same bits.
Status AdamStepCuda(const AdamWOptions& options, const CudaTensor& tensor, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_ADAM_ADAM_CUDA_H_
