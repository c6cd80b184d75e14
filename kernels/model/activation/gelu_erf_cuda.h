#ifndef GEMINID_KERNELS_MODEL_ACTIVATION_GELU_ERF_CUDA_H_
#define GEMINID_KERNELS_MODEL_ACTIVATION_GELU_ERF_CUDA_H_

#include <cstddef>

#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

namespace geminid::kernels {

// kernels/model/activation/gelu_erf.h on a GPU, with the bits of a host that has FMA.
template <typename T>
Status GeluErfForwardCuda(const T* x, size_t count, T* y, CudaStream stream);
template <typename T>
Status GeluErfBackwardCuda(const T* dy, const T* x, size_t count, T* dx, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ACTIVATION_GELU_ERF_CUDA_H_
