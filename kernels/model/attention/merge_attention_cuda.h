#ifndef GEMINID_KERNELS_MODEL_ATTENTION_MERGE_ATTENTION_CUDA_H_
#define GEMINID_KERNELS_MODEL_ATTENTION_MERGE_ATTENTION_CUDA_H_

#include "kernels/model/attention/merge_attention.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/cuda/stream.h"

namespace geminid::kernels {

// MergeAttention on a GPU. Exponentials and the logarithm come from another library than the
// host's, so results are equal to rounding.
Status MergeAttentionCuda(const MergeShape& shape, const float* other, const float* other_lse,
                          float* out, float* lse, CudaStream stream);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ATTENTION_MERGE_ATTENTION_CUDA_H_
