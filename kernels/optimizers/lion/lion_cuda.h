#ifndef GEMINID_KERNELS_OPTIMIZERS_LION_LION_CUDA_H_
#define GEMINID_KERNELS_OPTIMIZERS_LION_LION_CUDA_H_

#include "kernels/optimizers/lion/lion.h"
#include "kernels/optimizers/step/cuda_tensor.h"
#include "kernels/runtime/common/status.h"

namespace geminid::kernels {

// LionStep (kernels/optimizers/lion/lion.h) on a GPU, with the same bits.
Status LionStepCuda(const LionOptions& options, const CudaTensor& tensor, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_LION_LION_CUDA_H_
