#ifndef GEMINID_KERNELS_MODEL_ATTENTION_ATTENTION_CUDA_H_
#define GEMINID_KERNELS_MODEL_ATTENTION_ATTENTION_CUDA_H_

#include <cstddef>

#include "kernels/model/attention/attention.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

// kernels/model/attention/attention.h on a GPU: no score matrix, no atomics, and the bits of a host
// that has FMA, except for the last bit of lse, a logarithm. Uses fp32 CUDA cores, not tensor
// cores, for attention that no library supports.
namespace geminid::kernels {

template <typename T>
Status AttentionForwardCuda(const AttentionShape& shape, HeadsView<const T> q, HeadsView<const T> k,
                            HeadsView<const T> v, HeadsView<T> out, float* lse, CudaStream stream);

// Bytes of workspace on the device for the backward pass: one fp32 for every row of every head.
size_t AttentionCudaWorkspaceBytes(const AttentionShape& shape);

// `workspace` is 64-byte aligned.
template <typename T>
Status AttentionBackwardCuda(const AttentionShape& shape, const AttentionSaved<T>& saved,
                             HeadsView<T> dq, HeadsView<T> dk, HeadsView<T> dv, void* workspace,
                             size_t workspace_bytes, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ATTENTION_ATTENTION_CUDA_H_
