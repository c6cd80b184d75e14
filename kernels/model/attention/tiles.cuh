// The blocks of attention on a GPU. 256 threads hold a block of 64 x 64 scores; of 16 x 16 threads,
// thread (y, x) has the rows 4y .. 4y+3 and the columns x, x+16, x+32, x+48. So sixteen threads,
// half a warp, share a row like the sixteen lanes of the host's vectors, and every element is one
// chain of multiply-adds in the host's order. Device code; only the *_cuda.cu files include it.
#ifndef GEMINID_KERNELS_MODEL_ATTENTION_TILES_CUH_
#define GEMINID_KERNELS_MODEL_ATTENTION_TILES_CUH_

#include <limits>

#include "kernels/model/attention/attention.h"
#include "kernels/model/attention/layout.h"
#include "kernels/runtime/cuda/math.cuh"
#include "kernels/runtime/cuda/pack.cuh"

namespace geminid::kernels::cuda {

inline constexpr unsigned kTile = kAttentionBlock;
inline constexpr unsigned kTileThreads = 256;
inline constexpr unsigned kThreadRows = 4;
inline constexpr unsigned kThreadColumns = kTile / kLanes;
inline constexpr unsigned kSlice = 32;       // elements of a head that are staged at a time
inline constexpr unsigned kStagedRows = 16;  // tokens that are staged at a time
// A row of shared memory; padding puts rows on different banks.
inline constexpr unsigned kPadded = kTile + 1;

// The keys that a query sees: all earlier ones, the last ones of these, or all of the sequence.
// Each case has its own kernels, because a window needs more registers.
enum class Sees : unsigned { kBefore, kWindow, kAll };

using Slice = float[kSlice][kPadded];  // transposed: [element][token]
using Scores = float[kTile][kPadded];  // [query][key]

// Row and column of the calling thread.
struct TilePlace {
  unsigned y = threadIdx.x / kLanes;
  unsigned x = threadIdx.x % kLanes;
};

// One head of one batch entry. Token t is at data + (t - first_token) token_stride, for tokens from
// `first_token` on.
template <typename T>
struct TileHead {
  T* data;
  uint64_t token_stride;
  uint64_t first_token;

  __device__ bool Has(uint64_t token, uint64_t sequence) const {
    return token >= first_token && token < sequence;
  }
  __device__ T* Row(uint64_t token) const { return data + (token - first_token) * token_stride; }
};

// The arguments of all attention kernels.
struct TileShape {
  uint64_t sequence;
  uint64_t first_query;
  uint64_t window;  // AttentionShape::window
  unsigned head_dim;
  unsigned heads;
  unsigned kv_heads;
  unsigned blocks;  // of a sequence, from the block of the first query on
  unsigned slabs;   // of a head; a slab is the columns that one block of threads writes
  float scale;

  __device__ uint64_t queries() const { return sequence - first_query; }
  // The first key of the last block that a block of queries sees.
  template <Sees kSees>
  __device__ uint64_t LastKey(uint64_t query) const {
    return kSees == Sees::kAll ? (sequence - 1) / kTile * kTile : query;
  }
  // Like FirstKeyOf.
  __device__ uint64_t FirstKey(uint64_t query) const {
    return window == 0 || query < window ? 0 : (query - window + 1) / kTile * kTile;
  }
  template <typename T>
  __device__ TileHead<T> Head(const HeadsView<T>& view, uint64_t batch, unsigned head) const {
    return {
        view.data + batch * sequence * view.token_stride + static_cast<uint64_t>(head) * head_dim,
        view.token_stride, 0};
  }
  // A head of a tensor that begins with the first query.
  template <typename T>
  __device__ TileHead<T> QueryHead(const HeadsView<T>& view, uint64_t batch, unsigned head) const {
    return {
        view.data + batch * queries() * view.token_stride + static_cast<uint64_t>(head) * head_dim,
        view.token_stride, first_query};
  }
};

// to[e][r] = factor * element `begin + e` of token `first + r`; zeros for those that do not exist.
template <typename T>
__device__ void StageSlice(const TileShape& shape, const TileHead<const T>& from, uint64_t first,
                           unsigned begin, float factor, Slice& to) {
  for (unsigned i = threadIdx.x; i < kTile * kSlice; i += kTileThreads) {
    const unsigned r = i / kSlice;
    const unsigned e = i % kSlice;
    const bool exists = from.Has(first + r, shape.sequence) && begin + e < shape.head_dim;
    to[e][r] = exists ? Widen(from.Row(first + r)[begin + e]) * factor : 0.0F;
  }
}

// to[r][c] = factor * element `column + c` of token `first + r`; zeros for those that do not exist.
template <unsigned kSlab, typename T>
__device__ void StageRows(const TileShape& shape, const TileHead<const T>& from, uint64_t first,
                          unsigned column, float factor, float (&to)[kStagedRows][kSlab]) {
  for (unsigned i = threadIdx.x; i < kStagedRows * kSlab; i += kTileThreads) {
    const unsigned r = i / kSlab;
    const unsigned c = i % kSlab;
    const bool exists = from.Has(first + r, shape.sequence) && column + c < shape.head_dim;
    to[r][c] = exists ? Widen(from.Row(first + r)[column + c]) * factor : 0.0F;
  }
}

template <typename T>
struct TileOperand {
  TileHead<const T> head;
  uint64_t first;  // token
  float factor;
};

// sums = left right^T of two blocks of tokens.
template <typename T>
__device__ void TileProduct(const TileShape& shape, const TileOperand<T>& left,
                            const TileOperand<T>& right, Slice& left_slice, Slice& right_slice,
                            float (&sums)[kThreadRows][kThreadColumns]) {
  const TilePlace me;
#pragma unroll
  for (unsigned i = 0; i < kThreadRows; ++i) {
#pragma unroll
    for (unsigned j = 0; j < kThreadColumns; ++j) sums[i][j] = 0.0F;
  }
  for (unsigned begin = 0; begin < shape.head_dim; begin += kSlice) {
    StageSlice(shape, left.head, left.first, begin, left.factor, left_slice);
    StageSlice(shape, right.head, right.first, begin, right.factor, right_slice);
    __syncthreads();
#pragma unroll 4
    for (unsigned e = 0; e < kSlice; ++e) {
      float b[kThreadColumns];
#pragma unroll
      for (unsigned j = 0; j < kThreadColumns; ++j) b[j] = right_slice[e][me.x + j * kLanes];
#pragma unroll
      for (unsigned i = 0; i < kThreadRows; ++i) {
        const float a = left_slice[e][me.y * kThreadRows + i];
#pragma unroll
        for (unsigned j = 0; j < kThreadColumns; ++j) sums[i][j] = fmaf(a, b[j], sums[i][j]);
      }
    }
    __syncthreads();
  }
}

// sums[i][j] += the sum over k < kStagedRows of factor(i, k) rows[k][x + 16 j].
template <unsigned kSlab, class Factor>
__device__ void AddRows(const float (&rows)[kStagedRows][kSlab], const Factor& factor,
                        float (&sums)[kThreadRows][kSlab / kLanes]) {
  const unsigned x = TilePlace().x;
#pragma unroll 4
  for (unsigned k = 0; k < kStagedRows; ++k) {
    float b[kSlab / kLanes];
#pragma unroll
    for (unsigned j = 0; j < kSlab / kLanes; ++j) b[j] = rows[k][x + j * kLanes];
#pragma unroll
    for (unsigned i = 0; i < kThreadRows; ++i) {
      const float a = factor(i, k);
#pragma unroll
      for (unsigned j = 0; j < kSlab / kLanes; ++j) sums[i][j] = fmaf(a, b[j], sums[i][j]);
    }
  }
}

// sums[i][j] += the sum over the 64 tokens from `first` on of factor(i, token) times the token's
// elements. Synchronises all threads at its begin and end.
template <unsigned kSlab, typename T, class Factor>
__device__ void AddTokens(const TileShape& shape, const TileOperand<T>& tokens, unsigned column,
                          const Factor& factor, float (&rows)[kStagedRows][kSlab],
                          float (&sums)[kThreadRows][kSlab / kLanes]) {
  __syncthreads();
  for (unsigned begin = 0; begin < kTile; begin += kStagedRows) {
    StageRows(shape, tokens.head, tokens.first + begin, column, tokens.factor, rows);
    __syncthreads();
    AddRows(
        rows, [&](unsigned i, unsigned k) { return factor(i, begin + k); }, sums);
    __syncthreads();
  }
}

// Writes the rows of a block that exist.
template <unsigned kSlab, typename T>
__device__ void StoreTile(const TileShape& shape, const TileHead<T>& to, uint64_t first,
                          unsigned column, float factor,
                          const float (&sums)[kThreadRows][kSlab / kLanes]) {
  const TilePlace me;
#pragma unroll
  for (unsigned i = 0; i < kThreadRows; ++i) {
    const uint64_t token = first + me.y * kThreadRows + i;
    if (!to.Has(token, shape.sequence)) continue;
#pragma unroll
    for (unsigned j = 0; j < kSlab / kLanes; ++j) {
      const unsigned c = column + me.x + j * kLanes;
      if (c < shape.head_dim) {
        to.Row(token)[c] = Narrow<T>(sums[i][j] * factor);
      }
    }
  }
}

// Masks the keys after the query, in a block on the diagonal.
__device__ inline void MaskAboveDiagonal(float (&scores)[kThreadRows][kThreadColumns]) {
  const TilePlace me;
#pragma unroll
  for (unsigned i = 0; i < kThreadRows; ++i) {
#pragma unroll
    for (unsigned j = 0; j < kThreadColumns; ++j) {
      if (me.x + j * kLanes > me.y * kThreadRows + i) {
        scores[i][j] = -std::numeric_limits<float>::infinity();
      }
    }
  }
}

// Masks the keys before the window, in a block whose first key is `ahead` tokens before its first
// query.
__device__ inline void MaskBeforeWindow(uint64_t window, uint64_t ahead,
                                        float (&scores)[kThreadRows][kThreadColumns]) {
  const TilePlace me;
#pragma unroll
  for (unsigned i = 0; i < kThreadRows; ++i) {
#pragma unroll
    for (unsigned j = 0; j < kThreadColumns; ++j) {
      if (me.x + j * kLanes + window <= ahead + me.y * kThreadRows + i) {
        scores[i][j] = -std::numeric_limits<float>::infinity();
      }
    }
  }
}

// Masks the keys beyond the sequence, in a block with `keys` keys.
__device__ inline void MaskBeyond(unsigned keys, float (&scores)[kThreadRows][kThreadColumns]) {
  const TilePlace me;
#pragma unroll
  for (unsigned i = 0; i < kThreadRows; ++i) {
#pragma unroll
    for (unsigned j = 0; j < kThreadColumns; ++j) {
      if (me.x + j * kLanes >= keys) {
        scores[i][j] = -std::numeric_limits<float>::infinity();
      }
    }
  }
}

// The columns that a block of threads writes: whole heads of up to 128 elements.
inline constexpr unsigned kNarrowSlab = 64;
inline constexpr unsigned kWideSlab = 128;

inline TileShape ShapeOfTiles(const AttentionShape& shape, unsigned slab) {
  return {
      .sequence = shape.sequence,
      .first_query = shape.first_query,
      .window = shape.window,
      .head_dim = static_cast<unsigned>(shape.head_dim),
      .heads = static_cast<unsigned>(shape.heads),
      .kv_heads = static_cast<unsigned>(shape.kv_heads),
      .blocks = static_cast<unsigned>(BlocksFor(shape.sequence, kTile) - shape.first_query / kTile),
      .slabs = static_cast<unsigned>(BlocksFor(shape.head_dim, slab)),
      .scale = shape.scale};
}

}  // namespace geminid::kernels::cuda

#endif  // GEMINID_KERNELS_MODEL_ATTENTION_TILES_CUH_
