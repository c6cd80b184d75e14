#ifndef GEMINID_KERNELS_MODEL_NORMALISATION_RMS_NORM_CUDA_H_
#define GEMINID_KERNELS_MODEL_NORMALISATION_RMS_NORM_CUDA_H_

#include <cstddef>

#include "kernels/model/normalisation/rms_norm.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

// kernels/model/normalisation/rms_norm.h on a GPU. y, rstd and dx have the bits of a host that has
// FMA. dgamma differs by the order of its sums, which depends on the shape alone
// (kernels/runtime/cuda/column_sums.cuh).
namespace geminid::kernels {

template <typename T, typename P = T>
Status RmsNormForwardCuda(const RmsNormShape& shape, const T* x, const P* gamma, T* y, float* rstd,
                          CudaStream stream);

// Bytes of workspace on the device for the backward pass.
size_t RmsNormCudaWorkspaceBytes(const RmsNormShape& shape);

// `workspace` is 64-byte aligned. If dgamma is null, it is not used and may be null.
template <typename T, typename P = T>
Status RmsNormBackwardCuda(const RmsNormShape& shape, const RmsNormBackwardArgs<T, P>& args,
                           void* workspace, size_t workspace_bytes, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_NORMALISATION_RMS_NORM_CUDA_H_
