// Sums over the rows of a matrix, for every column: gradients of biases and of parameters of
// normalisations. The rows form at most kRowChunksMax chunks, so that many blocks work on few
// columns. The number of chunks depends on the shape alone, so every GPU gives the same bits:
//
//   in a chunk, row r is added to lane r mod 8, in order; lanes are folded as i + (i+4), +2, +1;
//   chunks are added in order, and the output's previous value (with accumulate) last.
//
// fp32, one rounding to T at the end. The host adds all rows in order; the difference is rounding.
// Device code; included by the *_cuda.cu files alone.
#ifndef GEMINID_KERNELS_RUNTIME_CUDA_COLUMN_SUMS_CUH_
#define GEMINID_KERNELS_RUNTIME_CUDA_COLUMN_SUMS_CUH_

#include <cstdint>

#include "kernels/runtime/cuda/pack.cuh"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels::cuda {

inline constexpr unsigned kSumColumns = 32;  // of a block, one per thread of a warp
inline constexpr unsigned kSumRowLanes = 8;  // warps of a block
inline constexpr size_t kRowChunksMax = 64;
inline constexpr size_t kChunkRowsMin = 64;

struct RowChunks {
  size_t rows_per_chunk;
  size_t chunks;

  explicit RowChunks(size_t rows)
      : rows_per_chunk(BlocksFor(rows, kRowChunksMax) < kChunkRowsMin
                           ? kChunkRowsMin
                           : BlocksFor(rows, kRowChunksMax)),
        chunks(BlocksFor(rows, rows_per_chunk)) {}
};

// Bytes for the chunks of `sums` sums per column.
inline size_t ColumnSumsWorkspaceBytes(size_t rows, size_t cols, size_t sums) {
  return RoundUpTo(RowChunks(rows).chunks * cols * sums * sizeof(float), kWorkspaceAlignment);
}

// Term has kSums and Add(row, column, sums[kSums]), which adds one element to its column.
template <class Term>
struct ChunkSums {
  static_assert(Term::kSums <= 2);
  static constexpr unsigned kThreads = kSumColumns * kSumRowLanes;

  __device__ void Run() const {
    __shared__ float lanes[Term::kSums][kSumRowLanes][kSumColumns];
    const unsigned lane = threadIdx.x / kSumColumns;
    const unsigned x = threadIdx.x % kSumColumns;
    const uint64_t column = blockIdx.x % column_blocks * kSumColumns + x;
    const uint64_t chunk = blockIdx.x / column_blocks;
    const uint64_t begin = chunk * rows_per_chunk;
    const uint64_t end = begin + rows_per_chunk < rows ? begin + rows_per_chunk : rows;
    float sums[Term::kSums] = {};
    if (column < cols) {
#pragma unroll 4
      for (uint64_t row = begin + lane; row < end; row += kSumRowLanes) term.Add(row, column, sums);
    }
#pragma unroll
    for (unsigned s = 0; s < Term::kSums; ++s) lanes[s][lane][x] = sums[s];
    __syncthreads();
    for (unsigned half = kSumRowLanes / 2; half != 0; half /= 2) {
      for (unsigned s = 0; s < Term::kSums; ++s) {
        if (lane < half) lanes[s][lane][x] += lanes[s][lane + half][x];
      }
      __syncthreads();
    }
    if (lane != 0 || column >= cols) return;
#pragma unroll
    for (unsigned s = 0; s < Term::kSums; ++s) {
      partial[(s * chunks + chunk) * cols + column] = lanes[s][0][x];
    }
  }

  Term term;
  uint64_t rows;
  uint64_t cols;
  uint64_t rows_per_chunk;
  uint64_t chunks;
  unsigned column_blocks;
  float* partial;  // [kSums][chunks][cols]
};

// The outputs of a column's sums, of which there are at most two.
template <typename T>
struct ColumnTargets {
  T* out[2];
};

// Adds the chunks in order: partial[sums][chunks][cols].
template <typename T>
Status AddRowChunks(const float* partial, size_t sums, size_t chunks, size_t cols,
                    const ColumnTargets<T>& targets, bool accumulate, CudaStream stream);

// `workspace` has ColumnSumsWorkspaceBytes(rows, cols, Term::kSums). With no rows the sums are 0.
template <typename T, class Term>
Status LaunchColumnSums(const Term& term, size_t rows, size_t cols, float* workspace,
                        const ColumnTargets<T>& targets, bool accumulate, CudaStream stream) {
  const RowChunks cut(rows);
  const size_t column_blocks = BlocksFor(cols, kSumColumns);
  const Status status =
      LaunchKernel(ChunkSums<Term>{term, rows, cols, cut.rows_per_chunk, cut.chunks,
                                   static_cast<unsigned>(column_blocks), workspace},
                   column_blocks * cut.chunks, stream);
  if (status != Status::kOk) return status;
  return AddRowChunks(workspace, Term::kSums, cut.chunks, cols, targets, accumulate, stream);
}

}  // namespace geminid::kernels::cuda

#endif  // GEMINID_KERNELS_RUNTIME_CUDA_COLUMN_SUMS_CUH_
