#ifndef GEMINID_KERNELS_OPTIMIZERS_ADAGRAD_ADAGRAD_CUDA_H_
#define GEMINID_KERNELS_OPTIMIZERS_ADAGRAD_ADAGRAD_CUDA_H_

#include "kernels/optimizers/adagrad/adagrad.h"
#include "kernels/optimizers/step/cuda_tensor.h"
#include "kernels/runtime/common/status.h"

namespace geminid::kernels {

// AdagradStep (kernels/optimizers/adagrad/adagrad.h) on a GPU, with the same bits.
Status AdagradStepCuda(const AdagradOptions& options, const CudaTensor& tensor, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_ADAGRAD_ADAGRAD_CUDA_H_
