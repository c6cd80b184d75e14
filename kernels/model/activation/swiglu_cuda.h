#ifndef GEMINID_KERNELS_MODEL_ACTIVATION_SWIGLU_CUDA_H_
#define GEMINID_KERNELS_MODEL_ACTIVATION_SWIGLU_CUDA_H_

#include "kernels/model/activation/swiglu.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

namespace geminid::kernels {

// kernels/model/activation/swiglu.h on a GPU, with the bits of a host that has FMA.
template <typename T>
Status SwigluForwardCuda(const SwigluShape& shape, const T* gate, const T* up, T* y,
                         CudaStream stream);
template <typename T>
Status SwigluBackwardCuda(const SwigluShape& shape, const T* dy, const T* gate, const T* up,
                          T* dgate, T* dup, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ACTIVATION_SWIGLU_CUDA_H_
