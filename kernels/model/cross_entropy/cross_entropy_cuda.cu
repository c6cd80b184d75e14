#include <cmath>
#include <limits>

#include "kernels/model/cross_entropy/checks.h"
#include "kernels/model/cross_entropy/cross_entropy_cuda.h"
#include "kernels/model/cross_entropy/rows.cuh"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {
namespace cuda {

// A block handles one token.
template <typename T>
struct CrossEntropyToken {
  static constexpr unsigned kThreads = cuda::kThreads;

  // Numbers that all threads of a block share.
  struct Row {
    float max;
    float scale;      // of the gradients
    float at_target;  // the gradient at the target
    double loss;
  };

  __device__ Row Finish(const T* row, int32_t target) const {
    __shared__ Row shared;
    const float max = LogitsRow::Max(row, cols);
    const double sum = LogitsRow::SumExp(row, cols, max);
    if (threadIdx.x == 0) {
      const auto x = static_cast<double>(Widen(row[target]));
      const auto most = static_cast<double>(max);
      const auto scale = static_cast<double>(grad_scale);
      shared = {.max = max,
                .scale = static_cast<float>(scale / sum),
                .at_target = static_cast<float>(scale * (exp(x - most) / sum - 1.0)),
                .loss = log(sum) + most - x};
    }
    __syncthreads();
    return shared;
  }

  __device__ void WriteZeros(T* out, uint64_t begin) const {
    for (uint64_t i = begin + threadIdx.x; i < stride; i += kThreads) out[i] = Narrow<T>(0.0F);
  }

  __device__ void WriteLoss(double loss) const {
    if (threadIdx.x != 0) return;
    losses[blockIdx.x] = loss;
    if (token_loss != nullptr) token_loss[blockIdx.x] = static_cast<float>(loss);
  }

  __device__ void Run() const {
    const T* const row = logits + blockIdx.x * stride;
    T* const out = dlogits == nullptr ? nullptr : dlogits + blockIdx.x * stride;
    const int32_t target = targets[blockIdx.x];
    if (target < 0 || static_cast<uint64_t>(target) >= cols) {
      WriteLoss(target == kIgnoredTarget ? 0.0 : std::numeric_limits<double>::quiet_NaN());
      if (out != nullptr) WriteZeros(out, 0);
      return;
    }
    const Row found = Finish(row, target);
    WriteLoss(found.loss);
    if (out == nullptr) return;
#pragma unroll 4
    for (uint64_t i = threadIdx.x; i < cols; i += kThreads) {
      const float gradient = Exp(Widen(row[i]) - found.max) * found.scale;
      out[i] = Narrow<T>(i == static_cast<uint64_t>(target) ? found.at_target : gradient);
    }
    WriteZeros(out, cols);
  }

  const T* logits;
  const int32_t* targets;
  T* dlogits;
  float* token_loss;
  double* losses;
  uint64_t cols;
  uint64_t stride;
  float grad_scale;
};
GEMINID_KERNEL(geminid_cross_entropy_fp32, CrossEntropyToken<float>);
GEMINID_KERNEL(geminid_cross_entropy_bf16, CrossEntropyToken<BFloat16>);

// Thread t adds tokens t, t + kThreads, ... in order; the threads' sums are folded as a tree.
struct CrossEntropyTotal {
  static constexpr unsigned kThreads = 256;

  __device__ void Run() const {
    __shared__ double sums[kThreads];
    __shared__ uint64_t counts[kThreads];
    const unsigned me = threadIdx.x;
    double sum = 0;
    uint64_t count = 0;
#pragma unroll 4
    for (uint64_t t = me; t < tokens; t += kThreads) {
      sum += losses[t];
      count += targets[t] == kIgnoredTarget ? 0 : 1;
    }
    sums[me] = sum;
    counts[me] = count;
    __syncthreads();
    for (unsigned half = kThreads / 2; half != 0; half /= 2) {
      if (me < half) {
        sums[me] += sums[me + half];
        counts[me] += counts[me + half];
      }
      __syncthreads();
    }
    if (me == 0) *result = {.loss_sum = sums[0], .counted = counts[0]};
  }

  const double* losses;
  const int32_t* targets;
  uint64_t tokens;
  CrossEntropyResult* result;
};
GEMINID_KERNEL(geminid_cross_entropy_total, CrossEntropyTotal);

}  // namespace cuda

size_t CrossEntropyCudaWorkspaceBytes(const CrossEntropyShape& shape) {
  return RoundUpTo(shape.tokens * sizeof(double), kWorkspaceAlignment);
}

template <typename T>
Status CrossEntropyCuda(const CrossEntropyShape& shape, const T* logits, const int32_t* targets,
                        float grad_scale, T* dlogits, float* token_loss, void* workspace,
                        size_t workspace_bytes, CrossEntropyResult* result, CudaStream stream) {
  Status status =
      CheckCrossEntropy(shape, logits, targets, grad_scale, dlogits, token_loss, result);
  if (status != Status::kOk) return status;
  status = CheckWorkspace(workspace, workspace_bytes, CrossEntropyCudaWorkspaceBytes(shape));
  if (status != Status::kOk) return status;
  auto* const losses = static_cast<double*>(workspace);
  const cuda::CrossEntropyToken<T> token = {logits, targets,          dlogits,          token_loss,
                                            losses, shape.vocabulary, shape.row_stride, grad_scale};
  status = cuda::LaunchKernel(token, shape.tokens, stream);
  if (status != Status::kOk) return status;
  return cuda::LaunchKernel(cuda::CrossEntropyTotal{losses, targets, shape.tokens, result}, 1,
                            stream);
}

template Status CrossEntropyCuda(const CrossEntropyShape&, const float*, const int32_t*, float,
                                 float*, float*, void*, size_t, CrossEntropyResult*, CudaStream);
template Status CrossEntropyCuda(const CrossEntropyShape&, const BFloat16*, const int32_t*, float,
                                 BFloat16*, float*, void*, size_t, CrossEntropyResult*, CudaStream);

}  // namespace geminid::kernels
