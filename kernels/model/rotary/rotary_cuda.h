#ifndef GEMINID_KERNELS_MODEL_ROTARY_ROTARY_CUDA_H_
#define GEMINID_KERNELS_MODEL_ROTARY_ROTARY_CUDA_H_

#include "kernels/model/rotary/rotary.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

// The rotations of kernels/model/rotary/rotary.h on a GPU, with the bits of the host. The tables
// come from RotaryTable and are in device memory.
namespace geminid::kernels {

template <typename T>
Status RotaryForwardCuda(const RotaryShape& shape, const float* cos, const float* sin, T* x,
                         CudaStream stream);
template <typename T>
Status RotaryBackwardCuda(const RotaryShape& shape, const float* cos, const float* sin, T* dx,
                          CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ROTARY_ROTARY_CUDA_H_
