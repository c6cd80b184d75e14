// One row of logits of a block: its largest element and the sum of its exponentials, with the bits
// of rows-inl.h. Device code; included by the *_cuda.cu files alone.
#ifndef GEMINID_KERNELS_MODEL_CROSS_ENTROPY_ROWS_CUH_
#define GEMINID_KERNELS_MODEL_CROSS_ENTROPY_ROWS_CUH_

#include <cstdint>
#include <limits>

#include "kernels/runtime/cuda/math.cuh"
#include "kernels/runtime/cuda/pack.cuh"

namespace geminid::kernels::cuda {

// Of a block of cuda::kThreads threads.
struct LogitsRow {
  static constexpr unsigned kGroups = kThreads / kLanes;
  static constexpr uint64_t kColumnsPerSum = 2048;  // summed in fp32, then added to a float64

  template <typename T>
  __device__ static float Max(const T* row, uint64_t cols) {
    __shared__ float group_max[kGroups];
    float best = -std::numeric_limits<float>::infinity();
#pragma unroll 4
    for (uint64_t i = threadIdx.x; i < cols; i += kThreads) best = fmaxf(best, Widen(row[i]));
    best = MaxLane(best);
    if (threadIdx.x % kLanes == 0) group_max[threadIdx.x / kLanes] = best;
    __syncthreads();
    for (unsigned g = 0; g < kGroups; ++g) best = fmaxf(best, group_max[g]);
    return best;
  }

  // Sum of exp(x - max), in thread 0 alone. Each half warp sums kColumnsPerSum columns.
  template <typename T>
  __device__ static double SumExp(const T* row, uint64_t cols, float max) {
    __shared__ float sums[kGroups];
    double total = 0;
    for (uint64_t first = 0; first < cols; first += kGroups * kColumnsPerSum) {
      const uint64_t begin = first + threadIdx.x / kLanes * kColumnsPerSum;
      const uint64_t end = begin + kColumnsPerSum < cols ? begin + kColumnsPerSum : cols;
      float sum = 0;
#pragma unroll 4
      for (uint64_t i = begin + threadIdx.x % kLanes; i < end; i += kLanes) {
        sum += Exp(Widen(row[i]) - max);
      }
      sum = SumLanes(sum);
      if (threadIdx.x % kLanes == 0) sums[threadIdx.x / kLanes] = sum;
      __syncthreads();
      if (threadIdx.x == 0) {
        for (unsigned g = 0; g < kGroups; ++g) total += static_cast<double>(sums[g]);
      }
      __syncthreads();
    }
    return total;
  }
};

}  // namespace geminid::kernels::cuda

#endif  // GEMINID_KERNELS_MODEL_CROSS_ENTROPY_ROWS_CUH_
