#include <cmath>

#include "kernels/model/attention/merge_attention_cuda.h"
#include "kernels/model/attention/merge_checks.h"
#include "kernels/runtime/cuda/kernel.cuh"

namespace geminid::kernels {
namespace cuda {

// A block merges one head of one token.
struct MergeHead {
  static constexpr unsigned kThreads = 64;

  struct Weights {
    float of_out;
    float of_other;
  };

  __device__ void Run() const {
    __shared__ Weights weights;
    const uint64_t token = blockIdx.x / heads;
    const uint64_t row = blockIdx.x % heads * tokens + token;
    if (threadIdx.x == 0) {
      const double a = lse[row];
      const double b = other_lse[row];
      const double merged = fmax(a, b) + log1p(exp(-fabs(a - b)));
      weights = {.of_out = static_cast<float>(exp(a - merged)),
                 .of_other = static_cast<float>(exp(b - merged))};
      lse[row] = static_cast<float>(merged);
    }
    __syncthreads();
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * head_dim;
    for (unsigned i = threadIdx.x; i < head_dim; i += kThreads) {
      out[first + i] = out[first + i] * weights.of_out + other[first + i] * weights.of_other;
    }
  }

  const float* other;
  const float* other_lse;
  float* out;
  float* lse;
  uint64_t tokens;
  unsigned heads;
  unsigned head_dim;
};
GEMINID_KERNEL(geminid_attention_merge, MergeHead);

}  // namespace cuda

Status MergeAttentionCuda(const MergeShape& shape, const float* other, const float* other_lse,
                          float* out, float* lse, CudaStream stream) {
  const Status status = CheckMerge(shape, other, other_lse, out, lse);
  if (status != Status::kOk) return status;
  const size_t blocks = shape.tokens * shape.heads;
  if (blocks > cuda::kBlocksMax || shape.head_dim > cuda::kBlocksMax) return Status::kSizeOverflow;
  return cuda::LaunchKernel(
      cuda::MergeHead{other, other_lse, out, lse, shape.tokens,
                      static_cast<unsigned>(shape.heads), static_cast<unsigned>(shape.head_dim)},
      blocks, stream);
}

}  // namespace geminid::kernels
