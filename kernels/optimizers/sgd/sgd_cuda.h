#ifndef GEMINID_KERNELS_OPTIMIZERS_SGD_SGD_CUDA_H_
#define GEMINID_KERNELS_OPTIMIZERS_SGD_SGD_CUDA_H_

#include "kernels/optimizers/sgd/sgd.h"
#include "kernels/optimizers/step/cuda_tensor.h"
#include "kernels/runtime/common/status.h"

namespace geminid::kernels {

// SgdStep (kernels/optimizers/sgd/sgd.h) on a GPU, with the same bits.
Status SgdStepCuda(const SgdOptions& options, const CudaTensor& tensor, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_SGD_SGD_CUDA_H_
