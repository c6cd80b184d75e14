#ifndef GEMINID_KERNELS_MODEL_NORMALISATION_LAYER_NORM_CUDA_H_
#define GEMINID_KERNELS_MODEL_NORMALISATION_LAYER_NORM_CUDA_H_

#include <cstddef>

#include "kernels/model/normalisation/layer_norm.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

// kernels/model/normalisation/layer_norm.h on a GPU. y, mean, rstd and dx have the bits of a host
// that has FMA. dgamma and dbeta differ by the order of their sums, which depends on the shape
// alone (kernels/runtime/cuda/column_sums.cuh).
namespace geminid::kernels {

template <typename T, typename P = T>
Status LayerNormForwardCuda(const LayerNormShape& shape, const T* x, const P* gamma, const P* beta,
                            T* y, float* mean, float* rstd, CudaStream stream);

// Bytes of workspace on the device for the backward pass.
size_t LayerNormCudaWorkspaceBytes(const LayerNormShape& shape);

// `workspace` is 64-byte aligned. If dgamma is null, it is not used and may be null.
template <typename T, typename P = T>
Status LayerNormBackwardCuda(const LayerNormShape& shape, const LayerNormBackwardArgs<T, P>& args,
                             void* workspace, size_t workspace_bytes, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_NORMALISATION_LAYER_NORM_CUDA_H_
