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
Status PositionEmbeddingBackwardCuda(size_t batch, size_t sequence, size_t hidden, const T* dy,
                                     T* dpositions, bool accumulate, CudaStream stream) {
  size_t positions = 0;
  const Status status = CheckPositionBackward(batch, sequence, hidden, dy, dpositions, &positions);
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
template Status PositionEmbeddingBackwardCuda(size_t, size_t, size_t, const float*, float*, bool,
                                              CudaStream);
template Status PositionEmbeddingBackwardCuda(size_t, size_t, size_t, const BFloat16*, BFloat16*,
                                              bool, CudaStream);

}  // namespace geminid::kernels
