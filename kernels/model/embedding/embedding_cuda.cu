#include "kernels/model/embedding/checks.h"
#include "kernels/model/embedding/embedding_cuda.h"
#include "kernels/runtime/cuda/elementwise.cuh"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {
namespace cuda {

template <typename T>
struct EmbeddingForwardOp {
  __device__ void operator()(uint64_t token, uint64_t column, unsigned n, bool words) const {
    const uint64_t row = static_cast<uint64_t>(ids[token]) - first_row;  // wraps when below
    Pack<T> value = {};
    Pack<T> position = {};
    if (row < rows) LoadPack(table + row * hidden + column, words, n, &value);
    if (positions != nullptr) {
      LoadPack(positions + token % sequence * hidden + column, words, n, &position);
    }
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) {
      value.element[i] = Narrow<T>(Widen(value.element[i]) + Widen(position.element[i]));
    }
    StorePack(value, words, n, y + token * hidden + column);
  }

  const int32_t* ids;
  const T* table;
  const T* positions;
  T* y;
  uint64_t hidden;
  uint64_t first_row;
  uint64_t rows;
  uint64_t sequence;
};
GEMINID_KERNEL(geminid_embedding_forward_fp32, ForEachRowPack<EmbeddingForwardOp<float>>);
GEMINID_KERNEL(geminid_embedding_forward_bf16, ForEachRowPack<EmbeddingForwardOp<BFloat16>>);

// A block per token. That of the first token of a row adds up all of that row.
template <typename T>
struct EmbeddingScatter {
  static constexpr unsigned kThreads = cuda::kThreads;
  static constexpr unsigned kColumns = 4;  // of a thread, kThreads apart
  static constexpr unsigned kBlockColumns = kThreads * kColumns;

  // Whether a token before `token` has its id. The same in every thread.
  __device__ bool IsLater(uint64_t token, int32_t id) const {
    __shared__ int found;
    for (uint64_t begin = 0; begin < token; begin += kThreads) {
      const uint64_t at = begin + threadIdx.x;
      if (threadIdx.x == 0) found = 0;
      __syncthreads();
      if (at < token && ids[at] == id) found = 1;  // whoever writes writes the same
      __syncthreads();
      if (found != 0) return true;
      __syncthreads();
    }
    return false;
  }

  // Adds the gradients of the tokens [begin, begin + kThreads) that have the id, in order.
  __device__ void AddTile(uint64_t begin, int32_t id, uint64_t column, float* sums) const {
    __shared__ bool has[kThreads];
    __shared__ int any;
    const uint64_t at = begin + threadIdx.x;
    const bool mine = at < tokens && ids[at] == id;
    if (threadIdx.x == 0) any = 0;
    __syncthreads();
    has[threadIdx.x] = mine;
    if (mine) any = 1;
    __syncthreads();
    if (any != 0) {
      for (unsigned t = 0; t < kThreads; ++t) {
        if (!has[t]) continue;
#pragma unroll
        for (unsigned c = 0; c < kColumns; ++c) {
          const uint64_t i = column + c * kThreads;
          if (i < hidden) sums[c] += Widen(dy[(begin + t) * hidden + i]);
        }
      }
    }
    __syncthreads();
  }

  __device__ void Run() const {
    const uint64_t token = blockIdx.x / column_blocks;
    const uint64_t column = blockIdx.x % column_blocks * kBlockColumns + threadIdx.x;
    const int32_t id = ids[token];
    const uint64_t row = static_cast<uint64_t>(id) - first_row;
    if (row >= rows || IsLater(token, id)) return;
    float sums[kColumns] = {};
    for (uint64_t begin = token / kThreads * kThreads; begin < tokens; begin += kThreads) {
      AddTile(begin, id, column, sums);
    }
#pragma unroll
    for (unsigned c = 0; c < kColumns; ++c) {
      const uint64_t i = column + c * kThreads;
      if (i >= hidden) continue;
      T* const to = dtable + row * hidden + i;
      *to = Narrow<T>(accumulate ? Widen(*to) + sums[c] : sums[c]);
    }
  }

  const int32_t* ids;
  const T* dy;
  T* dtable;
  uint64_t tokens;
  uint64_t hidden;
  uint64_t first_row;
  uint64_t rows;
  unsigned column_blocks;
  bool accumulate;
};
GEMINID_KERNEL(geminid_embedding_scatter_fp32, EmbeddingScatter<float>);
GEMINID_KERNEL(geminid_embedding_scatter_bf16, EmbeddingScatter<BFloat16>);

template <typename T>
struct ZeroOp {
  __device__ void operator()(uint64_t at, unsigned n, bool words) const {
    const Pack<T> zero = {};
    StorePack(zero, words, n, to + at);
  }

  T* to;
};
GEMINID_KERNEL(geminid_embedding_zero_fp32, ForEachPack<ZeroOp<float>>);
GEMINID_KERNEL(geminid_embedding_zero_bf16, ForEachPack<ZeroOp<BFloat16>>);

template <typename T>
struct PositionBackwardOp {
  __device__ void operator()(uint64_t at, unsigned n, bool words) const {
    float sums[kVector] = {};
    for (uint64_t b = 0; b < batch; ++b) {
      Pack<T> in = {};
      LoadPack(dy + b * count + at, words, n, &in);
#pragma unroll
      for (unsigned i = 0; i < kVector; ++i) sums[i] += Widen(in.element[i]);
    }
    Pack<T> out = {};
    if (accumulate) LoadPack(dpositions + at, words, n, &out);
#pragma unroll
    for (unsigned i = 0; i < kVector; ++i) {
      out.element[i] = Narrow<T>(accumulate ? Widen(out.element[i]) + sums[i] : sums[i]);
    }
    StorePack(out, words, n, dpositions + at);
  }

  const T* dy;
  T* dpositions;
  uint64_t batch;
  uint64_t count;
  bool accumulate;
};
GEMINID_KERNEL(geminid_position_backward_fp32, ForEachPack<PositionBackwardOp<float>>);
GEMINID_KERNEL(geminid_position_backward_bf16, ForEachPack<PositionBackwardOp<BFloat16>>);

}  // namespace cuda

template <typename T>
Status EmbeddingForwardCuda(const EmbeddingShape& shape, const int32_t* ids, const T* table,
                            const T* position_table, size_t sequence, T* y, CudaStream stream) {
  const Status status =
      CheckEmbeddingForward(shape, ids, Ids::kOnDevice, table, position_table, sequence, y);
  if (status != Status::kOk) return status;
  const cuda::EmbeddingForwardOp<T> op = {ids,          table,           position_table, y,
                                          shape.hidden, shape.first_row, shape.rows,     sequence};
  return cuda::LaunchForEachRowPack(op, shape.tokens, shape.hidden,
                                    cuda::RowsLieOnWords(shape.hidden, {table, position_table, y}),
                                    stream);
}

template <typename T>
Status EmbeddingBackwardCuda(const EmbeddingShape& shape, const int32_t* ids, const T* dy,
                             T* dtable, bool accumulate, CudaStream stream) {
  size_t table_count = 0;
  Status status = CheckEmbeddingBackward(shape, ids, Ids::kOnDevice, dy, dtable, &table_count);
  if (status == Status::kOk && !accumulate) {
    status = cuda::LaunchForEachPack(cuda::ZeroOp<T>{dtable}, table_count, cuda::LiesOnWord(dtable),
                                     stream);
  }
  if (status != Status::kOk) return status;
  using Kernel = cuda::EmbeddingScatter<T>;
  const size_t column_blocks = cuda::BlocksFor(shape.hidden, Kernel::kBlockColumns);
  const Kernel kernel = {ids,          dy,
                         dtable,       shape.tokens,
                         shape.hidden, shape.first_row,
                         shape.rows,   static_cast<unsigned>(column_blocks),
                         accumulate};
  return cuda::LaunchKernel(kernel, shape.tokens * column_blocks, stream);
}

template <typename T>
Status PositionEmbeddingBackwardCuda(size_t batch, size_t sequence, size_t hidden, const T* dy,
                                     T* dpositions, bool accumulate, CudaStream stream) {
  size_t positions = 0;
  const Status status =
      CheckPositionBackward(batch, sequence, hidden, dy, dpositions, &positions);
  if (status != Status::kOk) return status;
  const bool words = cuda::RowsLieOnWords(positions, {dy, dpositions});
  return cuda::LaunchForEachPack(
      cuda::PositionBackwardOp<T>{dy, dpositions, batch, positions, accumulate}, positions, words,
      stream);
}

template Status EmbeddingForwardCuda(const EmbeddingShape&, const int32_t*, const float*,
                                     const float*, size_t, float*, CudaStream);
template Status EmbeddingForwardCuda(const EmbeddingShape&, const int32_t*, const BFloat16*,
                                     const BFloat16*, size_t, BFloat16*, CudaStream);
template Status EmbeddingBackwardCuda(const EmbeddingShape&, const int32_t*, const float*, float*,
                                      bool, CudaStream);
template Status EmbeddingBackwardCuda(const EmbeddingShape&, const int32_t*, const BFloat16*,
                                      BFloat16*, bool, CudaStream);
template Status PositionEmbeddingBackwardCuda(size_t, size_t, size_t, const float*, float*, bool,
                                              CudaStream);
template Status PositionEmbeddingBackwardCuda(size_t, size_t, size_t, const BFloat16*, BFloat16*,
                                              bool, CudaStream);

}  // namespace geminid::kernels
