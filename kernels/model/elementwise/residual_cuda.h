#ifndef GEMINID_KERNELS_MODEL_ELEMENTWISE_RESIDUAL_CUDA_H_
#define GEMINID_KERNELS_MODEL_ELEMENTWISE_RESIDUAL_CUDA_H_

#include <cstddef>

#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

namespace geminid::kernels {

// ResidualAdd (kernels/model/elementwise/residual.h) on a GPU, with the same bits.
template <typename T>
Status ResidualAddCuda(const T* a, const T* b, size_t count, T* out, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ELEMENTWISE_RESIDUAL_CUDA_H_
