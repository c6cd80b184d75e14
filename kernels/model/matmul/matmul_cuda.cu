#include "kernels/model/matmul/checks.h"
#include "kernels/model/matmul/matmul_cuda.h"
#include "kernels/runtime/cuda/pack.cuh"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {
namespace cuda {

// A block of 256 threads computes 64 x 64 elements of C. Of 16 x 16 threads, thread (y, x) computes
// the rows 4y .. 4y+3 and the columns x, x+16, x+32, x+48.
inline constexpr unsigned kProductTile = 64;
inline constexpr unsigned kProductLanes = 16;
inline constexpr unsigned kProductRows = 4;
inline constexpr unsigned kProductColumns = kProductTile / kProductLanes;
inline constexpr unsigned kProductSlice = 32;  // elements of k, staged at once

// [k][row or column]; a row ends with a padding word, so that two do not hit the same banks.
using ProductSlice = float[kProductSlice][kProductTile + 1];

// One operand, seen as `lines` lines (rows of op(A), columns of op(B)) of k elements each.
template <typename In>
struct ProductOperand {
  // Loads kProductSlice elements from `begin` on of the tile's lines into to[e][line]; zeros beyond
  // the matrix. Neighbouring threads read neighbouring memory.
  __device__ void Stage(uint64_t first_line, uint64_t begin, ProductSlice& to) const {
    for (unsigned i = threadIdx.x; i < kProductTile * kProductSlice; i += kThreads) {
      const unsigned line = along_k ? i / kProductSlice : i % kProductTile;
      const unsigned e = along_k ? i % kProductSlice : i / kProductTile;
      const uint64_t l = first_line + line;
      const uint64_t at = begin + e;
      const bool exists = l < lines && at < depth;
      to[e][line] = exists ? Widen(data[along_k ? l * stride + at : at * stride + l]) : 0.0F;
    }
  }

  const In* data;
  uint64_t stride;
  uint64_t lines;
  uint64_t depth;
  bool along_k;  // the elements of a line are adjacent
};

template <typename In, typename Out>
struct ProductTile {
  static constexpr unsigned kThreads = cuda::kThreads;

  __device__ void Run() const {
    __shared__ ProductSlice left;
    __shared__ ProductSlice right;
    const uint64_t row = static_cast<uint64_t>(blockIdx.x / column_tiles) * kProductTile;
    const uint64_t column = static_cast<uint64_t>(blockIdx.x % column_tiles) * kProductTile;
    const unsigned y = threadIdx.x / kProductLanes;
    const unsigned x = threadIdx.x % kProductLanes;
    float sums[kProductRows][kProductColumns] = {};
    for (uint64_t begin = 0; begin < a.depth; begin += kProductSlice) {
      a.Stage(row, begin, left);
      b.Stage(column, begin, right);
      __syncthreads();
      const uint64_t rest = a.depth - begin;
      const unsigned depth = rest < kProductSlice ? static_cast<unsigned>(rest) : kProductSlice;
#pragma unroll 4
      for (unsigned e = 0; e < depth; ++e) {
        float values[kProductColumns];
#pragma unroll
        for (unsigned j = 0; j < kProductColumns; ++j) values[j] = right[e][x + j * kProductLanes];
#pragma unroll
        for (unsigned i = 0; i < kProductRows; ++i) {
          const float factor = left[e][y * kProductRows + i];
#pragma unroll
          for (unsigned j = 0; j < kProductColumns; ++j) {
            sums[i][j] = fmaf(factor, values[j], sums[i][j]);
          }
        }
      }
      __syncthreads();
    }
    Store(row + y * kProductRows, column + x, sums);
  }

  __device__ void Store(uint64_t first_row, uint64_t first_column,
                        const float (&sums)[kProductRows][kProductColumns]) const {
#pragma unroll
    for (unsigned i = 0; i < kProductRows; ++i) {
      const uint64_t row = first_row + i;
      if (row >= a.lines) return;
#pragma unroll
      for (unsigned j = 0; j < kProductColumns; ++j) {
        const uint64_t column = first_column + j * kProductLanes;
        if (column >= b.lines) continue;
        Out& element = c[row * c_stride + column];
        float sum = sums[i][j] * scale;
        if (bias != nullptr) sum += Widen(bias[column]);
        if (accumulate) sum += Widen(element);
        element = Narrow<Out>(sum);
      }
    }
  }

  ProductOperand<In> a;
  ProductOperand<In> b;
  const Out* bias;  // nullable
  Out* c;
  uint64_t c_stride;
  unsigned column_tiles;
  float scale;
  bool accumulate;
};
GEMINID_KERNEL(geminid_product_fp32, ProductTile<float, float>);
GEMINID_KERNEL(geminid_product_bf16, ProductTile<BFloat16, BFloat16>);
GEMINID_KERNEL(geminid_product_bf16_fp32, ProductTile<BFloat16, float>);

}  // namespace cuda

template <typename In, typename Out>
Status MatmulCuda(const MatmulShape& shape, float scale, const In* a, const In* b, const Out* bias,
                  Out* c, CudaStream stream) {
  MatmulShape s = shape;
  Status status = NormaliseMatmul(&s);
  if (status != Status::kOk) return status;
  if (!std::isfinite(scale)) return Status::kInvalidParameter;
  status = CheckBuffers({Buffer::Of(a, StorageA(s).span()), Buffer::Of(b, StorageB(s).span()),
                         Buffer::Of(bias, s.bias ? s.n : 0)},
                        {Buffer::Of(c, StorageC(s).span())});
  if (status != Status::kOk) return status;
  const size_t row_tiles = cuda::BlocksFor(s.m, cuda::kProductTile);
  const size_t column_tiles = cuda::BlocksFor(s.n, cuda::kProductTile);
  const cuda::ProductTile<In, Out> tile = {
      .a = {a, s.a_stride, s.m, s.k, s.transpose_a == Transpose::kNo},
      .b = {b, s.b_stride, s.n, s.k, s.transpose_b == Transpose::kYes},
      .bias = s.bias ? bias : nullptr,
      .c = c,
      .c_stride = s.c_stride,
      .column_tiles = static_cast<unsigned>(column_tiles),
      .scale = scale,
      .accumulate = s.accumulate};
  return cuda::LaunchKernel(tile, row_tiles * column_tiles, stream);
}

template Status MatmulCuda(const MatmulShape&, float, const float*, const float*, const float*,
                           float*, CudaStream);
template Status MatmulCuda(const MatmulShape&, float, const BFloat16*, const BFloat16*,
                           const BFloat16*, BFloat16*, CudaStream);
template Status MatmulCuda(const MatmulShape&, float, const BFloat16*, const BFloat16*,
                           const float*, float*, CudaStream);

}  // namespace geminid::kernels
