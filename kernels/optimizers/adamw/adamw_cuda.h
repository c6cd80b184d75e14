#ifndef GEMINID_KERNELS_OPTIMIZERS_ADAMW_ADAMW_CUDA_H_
#define GEMINID_KERNELS_OPTIMIZERS_ADAMW_ADAMW_CUDA_H_

#include "kernels/optimizers/adamw/adamw.h"
#include "kernels/optimizers/step/cuda_tensor.h"
#include "kernels/runtime/common/status.h"

namespace geminid::kernels {

// AdamWStep (kernels/optimizers/adamw/adamw.h) on a GPU, with the same bits.
Status AdamWStepCuda(const AdamWOptions& options, const CudaTensor& tensor, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_ADAMW_ADAMW_CUDA_H_
