// Normalisations treat a row by half a warp, whose threads are the sixteen lanes of the host's
// vectors: so the sums over a row have its bits. Device code; included by the *_cuda.cu files
// alone.
#ifndef GEMINID_KERNELS_MODEL_NORMALISATION_ROWS_CUH_
#define GEMINID_KERNELS_MODEL_NORMALISATION_ROWS_CUH_

#include "kernels/runtime/cuda/math.cuh"
#include "kernels/runtime/cuda/pack.cuh"

namespace geminid::kernels::cuda {

inline constexpr unsigned kRowThreads = 128;
inline constexpr unsigned kRowsPerBlock = kRowThreads / kLanes;

// The row of the calling thread. Threads without one take the last row along, so that whole warps
// meet the shuffles, and store nothing.
struct RowOfThread {
  uint64_t row;
  unsigned lane;
  bool exists;

  __device__ explicit RowOfThread(uint64_t rows)
      : row(static_cast<uint64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / kLanes),
        lane(threadIdx.x % kLanes),
        exists(row < rows) {
    if (!exists) row = rows - 1;
  }
};

// The sum over a row of add(column, sum), lane by lane.
template <class Add>
__device__ float SumOfRow(uint64_t cols, unsigned lane, const Add& add) {
  float sum = 0;
#pragma unroll 8
  for (uint64_t column = lane; column < cols; column += kLanes) sum = add(column, sum);
  return SumLanes(sum);
}

}  // namespace geminid::kernels::cuda

#endif  // GEMINID_KERNELS_MODEL_NORMALISATION_ROWS_CUH_
