#include <cmath>

#include "kernels/model/cross_entropy/cross_entropy_part_cuda.h"
#include "kernels/model/cross_entropy/part_checks.h"
#include "kernels/model/cross_entropy/rows.cuh"

namespace geminid::kernels {
namespace cuda {

// The rows of a part. A block handles one of them.
struct LogitsPart {
  const float* logits;
  uint64_t columns;
  uint64_t first_column;
  uint64_t stride;

  __device__ const float* Row() const { return logits + blockIdx.x * stride; }

  // The target's column in the part; `columns` or more if it is elsewhere (wraps if before it).
  __device__ uint64_t ColumnOf(int32_t target) const {
    return target == kIgnoredTarget ? columns : static_cast<uint64_t>(target) - first_column;
  }
};

struct LogitsPartMax {
  static constexpr unsigned kThreads = cuda::kThreads;

  __device__ void Run() const {
    const float found = LogitsRow::Max(part.Row(), part.columns);
    if (threadIdx.x == 0) max[blockIdx.x] = found;
  }

  LogitsPart part;
  float* max;
};
GEMINID_KERNEL(geminid_cross_entropy_part_max, LogitsPartMax);

struct LogitsPartSums {
  static constexpr unsigned kThreads = cuda::kThreads;

  __device__ void Run() const {
    const float* const row = part.Row();
    const double sum = LogitsRow::SumExp(row, part.columns, max[blockIdx.x]);
    if (threadIdx.x != 0) return;
    const uint64_t column = part.ColumnOf(targets[blockIdx.x]);
    sums[blockIdx.x] = static_cast<float>(sum);
    at_target[blockIdx.x] = column < part.columns ? row[column] : 0.0F;
  }

  LogitsPart part;
  const int32_t* targets;
  const float* max;
  float* sums;
  float* at_target;
};
GEMINID_KERNEL(geminid_cross_entropy_part_sums, LogitsPartSums);

struct LogitsPartGradient {
  static constexpr unsigned kThreads = cuda::kThreads;

  // Numbers that all threads of a block share.
  struct Scale {
    float of_all;
    float at_target;  // the gradient at the target, if the target is in this part
  };

  __device__ void WriteZeros(float* out, uint64_t begin) const {
    for (uint64_t i = begin + threadIdx.x; i < part.stride; i += kThreads) out[i] = 0.0F;
  }

  __device__ void Run() const {
    __shared__ Scale shared;
    const float* const row = part.Row();
    float* const out = dlogits + blockIdx.x * part.stride;
    const int32_t target = targets[blockIdx.x];
    if (target == kIgnoredTarget) {
      WriteZeros(out, 0);
      return;
    }
    const uint64_t column = part.ColumnOf(target);
    const float most = max[blockIdx.x];
    if (threadIdx.x == 0) {
      const auto scale = static_cast<double>(grad_scale);
      const auto sum = static_cast<double>(sums[blockIdx.x]);
      shared = {.of_all = static_cast<float>(scale / sum), .at_target = 0.0F};
      if (column < part.columns) {
        const double exponent = static_cast<double>(row[column]) - static_cast<double>(most);
        shared.at_target = static_cast<float>(scale * (exp(exponent) / sum - 1.0));
      }
    }
    __syncthreads();
#pragma unroll 4
    for (uint64_t i = threadIdx.x; i < part.columns; i += kThreads) {
      const float gradient = Exp(row[i] - most) * shared.of_all;
      out[i] = i == column ? shared.at_target : gradient;
    }
    WriteZeros(out, part.columns);
  }

  LogitsPart part;
  const int32_t* targets;
  const float* max;
  const float* sums;
  float* dlogits;
  float grad_scale;
};
GEMINID_KERNEL(geminid_cross_entropy_part_gradient, LogitsPartGradient);

inline LogitsPart RowsOf(const CrossEntropyPart& part, const float* logits) {
  return {logits, part.columns, part.first_column, part.row_stride};
}

}  // namespace cuda

Status CrossEntropyPartMaxCuda(const CrossEntropyPart& part, const float* logits, float* max,
                               CudaStream stream) {
  const Status status = CheckCrossEntropyPartMax(part, logits, max);
  if (status != Status::kOk) return status;
  return cuda::LaunchKernel(cuda::LogitsPartMax{cuda::RowsOf(part, logits), max}, part.tokens,
                            stream);
}

Status CrossEntropyPartSumsCuda(const CrossEntropyPart& part, const float* logits,
                                const int32_t* targets, const float* max, float* sums,
                                float* at_target, CudaStream stream) {
  const Status status = CheckCrossEntropyPartSums(part, logits, targets, max, sums, at_target);
  if (status != Status::kOk) return status;
  return cuda::LaunchKernel(
      cuda::LogitsPartSums{cuda::RowsOf(part, logits), targets, max, sums, at_target}, part.tokens,
      stream);
}

Status CrossEntropyPartGradientCuda(const CrossEntropyPart& part, const float* logits,
                                    const int32_t* targets, const float* max, const float* sums,
                                    float grad_scale, float* dlogits, CudaStream stream) {
  const Status status =
      CheckCrossEntropyPartGradient(part, logits, targets, max, sums, grad_scale, dlogits);
  if (status != Status::kOk) return status;
  return cuda::LaunchKernel(
      cuda::LogitsPartGradient{cuda::RowsOf(part, logits), targets, max, sums, dlogits, grad_scale},
      part.tokens, stream);
}

}  // namespace geminid::kernels
