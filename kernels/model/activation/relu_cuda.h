#ifndef GEMINID_KERNELS_MODEL_ACTIVATION_RELU_CUDA_H_
#define GEMINID_KERNELS_MODEL_ACTIVATION_RELU_CUDA_H_

#include <cstddef>

#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

namespace geminid::kernels {

// kernels/model/activation/relu.h on a GPU, with the bits of the host.
template <typename T>
Status ReluForwardCuda(const T* x, size_t count, T* y, CudaStream stream);
template <typename T>
Status ReluBackwardCuda(const T* dy, const T* x, size_t count, T* dx, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ACTIVATION_RELU_CUDA_H_
