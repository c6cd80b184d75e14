#include "kernels/model/elementwise/transpose_checks.h"
#include "kernels/model/elementwise/transpose_cuda.h"
#include "kernels/runtime/cuda/pack.cuh"

namespace geminid::kernels {
namespace cuda {

// A value as an element of To.
template <typename To, typename From>
__device__ To TransposedAs(From value) {
  if constexpr (std::is_same_v<From, To>) {
    return value;
  } else {
    return Narrow<To>(value);
  }
}

// A block has a square tile. It reads rows and writes columns, each as whole lines.
template <typename From, typename To>
struct TransposeTile {
  static constexpr unsigned kEdge = 32;
  static constexpr unsigned kRowsAtOnce = 8;
  static constexpr unsigned kThreads = kEdge * kRowsAtOnce;

  __device__ void Run() const {
    __shared__ From tile[kEdge][kEdge + 1];  // so that a column's elements lie in many banks
    const uint64_t first_row = blockIdx.x / column_tiles * kEdge;
    const uint64_t first_column = blockIdx.x % column_tiles * kEdge;
    const unsigned x = threadIdx.x % kEdge;
    const unsigned y = threadIdx.x / kEdge;
    for (unsigned r = y; r < kEdge; r += kRowsAtOnce) {
      if (first_row + r < rows && first_column + x < cols) {
        tile[r][x] = from[(first_row + r) * cols + first_column + x];
      }
    }
    __syncthreads();
    for (unsigned c = y; c < kEdge; c += kRowsAtOnce) {
      if (first_column + c < cols && first_row + x < rows) {
        to[(first_column + c) * rows + first_row + x] = TransposedAs<To>(tile[x][c]);
      }
    }
  }

  const From* from;
  To* to;
  uint64_t rows;
  uint64_t cols;
  uint64_t column_tiles;
};
GEMINID_KERNEL(geminid_transpose_fp32, TransposeTile<float, float>);
GEMINID_KERNEL(geminid_transpose_bf16, TransposeTile<BFloat16, BFloat16>);
GEMINID_KERNEL(geminid_transpose_fp32_to_bf16, TransposeTile<float, BFloat16>);

}  // namespace cuda

template <typename From, typename To>
Status TransposeMatrixCuda(size_t rows, size_t cols, const From* from, To* to, CudaStream stream) {
  const Status status = CheckTranspose(rows, cols, from, to);
  if (status != Status::kOk || rows == 0 || cols == 0) return status;
  using Tile = cuda::TransposeTile<From, To>;
  const size_t column_tiles = cuda::BlocksFor(cols, Tile::kEdge);
  return cuda::LaunchKernel(Tile{from, to, rows, cols, column_tiles},
                            cuda::BlocksFor(rows, Tile::kEdge) * column_tiles, stream);
}

template Status TransposeMatrixCuda(size_t, size_t, const float*, float*, CudaStream);
template Status TransposeMatrixCuda(size_t, size_t, const BFloat16*, BFloat16*, CudaStream);
template Status TransposeMatrixCuda(size_t, size_t, const float*, BFloat16*, CudaStream);

}  // namespace geminid::kernels
