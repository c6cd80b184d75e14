// kernels/numeric/norm/block_tree.h on a GPU: a warp folds a tree. Device code; included by the
// *_cuda.cu files alone.
#ifndef GEMINID_KERNELS_NUMERIC_NORM_BLOCK_TREE_CUH_
#define GEMINID_KERNELS_NUMERIC_NORM_BLOCK_TREE_CUH_

#include <cstdint>

#include "kernels/numeric/norm/block_tree.h"
#include "kernels/runtime/cuda/kernel.cuh"

namespace geminid::kernels::cuda {

inline constexpr unsigned kTreeWarp = 32;
inline constexpr unsigned kTreeValues = kTreeBlocks / kTreeWarp;  // of a thread

// Returns to lane 0 the tree sum of sum_of(i), i < count <= kTreeBlocks; 0 for a count of 0. A
// whole warp calls it.
template <class SumOf>
__device__ double FoldTree(uint64_t count, const SumOf& sum_of) {
  const unsigned lane = threadIdx.x % kTreeWarp;
  double values[kTreeValues];
#pragma unroll
  for (unsigned j = 0; j < kTreeValues; ++j) {
    const unsigned i = lane + j * kTreeWarp;
    values[j] = i < count ? sum_of(i) : 0.0;
  }
#pragma unroll
  for (unsigned half = kTreeValues / 2; half != 0; half /= 2) {
#pragma unroll
    for (unsigned j = 0; j < half; ++j) values[j] += values[j + half];
  }
  double sum = values[0];
#pragma unroll
  for (unsigned half = kTreeWarp / 2; half != 0; half /= 2) {
    sum += __shfl_down_sync(0xFFFFFFFFu, sum, half, kTreeWarp);
  }
  return sum;
}

// Thread 0 of a block of kThreads adds n values value(i) in order; all threads load them.
template <unsigned kThreads, class Value>
__device__ double AddInOrder(double sum, uint64_t n, const Value& value) {
  __shared__ double tile[kThreads];
  for (uint64_t begin = 0; begin < n; begin += kThreads) {
    const uint64_t left = n - begin < kThreads ? n - begin : kThreads;
    if (threadIdx.x < left) tile[threadIdx.x] = value(begin + threadIdx.x);
    __syncthreads();
    if (threadIdx.x == 0) {
#pragma unroll 16
      for (uint64_t i = 0; i < left; ++i) sum += tile[i];
    }
    __syncthreads();
  }
  return sum;
}

}  // namespace geminid::kernels::cuda

#endif  // GEMINID_KERNELS_NUMERIC_NORM_BLOCK_TREE_CUH_
