// Kernels that process every element, or every pack of elements, by itself. Device code; included
// by the *_cuda.cu files alone.
#ifndef GEMINID_KERNELS_RUNTIME_CUDA_ELEMENTWISE_CUH_
#define GEMINID_KERNELS_RUNTIME_CUDA_ELEMENTWISE_CUH_

#include <cstdint>
#include <initializer_list>

#include "kernels/runtime/cuda/pack.cuh"

namespace geminid::kernels::cuda {

// Calls op(at, n, words) for each pack of `count` elements: n <= kVector elements from `at` on.
template <class Op>
struct ForEachPack {
  static constexpr unsigned kThreads = cuda::kThreads;

  __device__ void Run() const {
#pragma unroll
    for (unsigned v = 0; v < kVectorsPerThread; ++v) {
      const uint64_t at = static_cast<uint64_t>(blockIdx.x) * kBlockElements +
                          static_cast<uint64_t>(v * kThreads + threadIdx.x) * kVector;
      if (at >= count) return;
      const uint64_t left = count - at;
      op(at, left < kVector ? static_cast<unsigned>(left) : kVector, words);
    }
  }

  Op op;
  uint64_t count;
  bool words;  // every array of the operation lies on 16 bytes
};

template <class Op>
Status LaunchForEachPack(const Op& op, size_t count, bool words, CudaStream stream) {
  return LaunchKernel(ForEachPack<Op>{op, count, words}, BlocksFor(count, kBlockElements), stream);
}

// Calls op(row, column, n, words) for each pack of each row of a matrix.
template <class Op>
struct ForEachRowPack {
  static constexpr unsigned kThreads = cuda::kThreads;

  __device__ void Run() const {
    const uint64_t row = blockIdx.x / blocks_per_row;
    const uint64_t first = blockIdx.x % blocks_per_row * kBlockElements;
#pragma unroll
    for (unsigned v = 0; v < kVectorsPerThread; ++v) {
      const uint64_t column = first + (v * kThreads + threadIdx.x) * kVector;
      if (column >= cols) return;
      const uint64_t left = cols - column;
      op(row, column, left < kVector ? static_cast<unsigned>(left) : kVector, words);
    }
  }

  Op op;
  uint64_t cols;
  unsigned blocks_per_row;
  bool words;  // every row of every array lies on 16 bytes
};

// Whether all rows lie on 16 bytes. They are dense, or kVector divides their stride.
inline bool RowsLieOnWords(size_t cols, std::initializer_list<const void*> arrays) {
  bool words = cols % kVector == 0;
  for (const void* array : arrays) words = words && LiesOnWord(array);
  return words;
}

template <class Op>
Status LaunchForEachRowPack(const Op& op, size_t rows, size_t cols, bool words, CudaStream stream) {
  const size_t blocks_per_row = BlocksFor(cols, kBlockElements);
  if (rows != 0 && blocks_per_row > kBlocksMax / rows) return Status::kSizeOverflow;
  return LaunchKernel(ForEachRowPack<Op>{op, cols, static_cast<unsigned>(blocks_per_row), words},
                      rows * blocks_per_row, stream);
}

}  // namespace geminid::kernels::cuda

#endif  // GEMINID_KERNELS_RUNTIME_CUDA_ELEMENTWISE_CUH_
