#include "kernels/model/attention/attention_cuda.h"
#include "kernels/model/attention/checks.h"
#include "kernels/model/attention/tiles.cuh"

namespace geminid::kernels {
namespace cuda {

// delta[batch, heads, sequence] = rowsum(dO * O); half a warp computes one element.
template <typename T>
struct AttentionDelta {
  static constexpr unsigned kThreads = 128;
  static constexpr unsigned kRowsPerBlock = kThreads / kLanes;

  __device__ void Run() const {
    const uint64_t at = static_cast<uint64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / kLanes;
    const unsigned lane = threadIdx.x % kLanes;
    const uint64_t row = at < rows ? at : rows - 1;  // whole warps reach the shuffles
    const uint64_t head_index = row / shape.sequence;
    const auto head = static_cast<unsigned>(head_index % shape.heads);
    const uint64_t batch = head_index / shape.heads;
    const uint64_t token = row % shape.sequence;
    const TileHead<const T> o = shape.Head(out, batch, head);
    const TileHead<const T> d = shape.Head(dout, batch, head);
    float sum = 0;
    for (unsigned i = lane; i < shape.head_dim; i += kLanes) {
      sum = fmaf(Widen(o.data[token * o.token_stride + i]),
                 Widen(d.data[token * d.token_stride + i]), sum);
    }
    sum = SumLanes(sum);
    if (at < rows && lane == 0) delta[row] = sum;
  }

  TileShape shape;
  HeadsView<const T> out;
  HeadsView<const T> dout;
  float* delta;
  uint64_t rows;
};
GEMINID_KERNEL(geminid_attention_delta_fp32, AttentionDelta<float>);
GEMINID_KERNEL(geminid_attention_delta_bf16, AttentionDelta<BFloat16>);

// The values of the forward pass that both kernels below read.
template <typename T, Sees kSees = Sees::kBefore>
struct AttentionRead {
  TileShape shape;
  HeadsView<const T> q;
  HeadsView<const T> k;
  HeadsView<const T> v;
  HeadsView<const T> dout;
  const float* lse;
  const float* delta;

  __device__ TileOperand<T> Queries(uint64_t batch, unsigned head, uint64_t query) const {
    return {shape.Head(q, batch, head), query, shape.scale};
  }
  __device__ TileOperand<T> Gradients(uint64_t batch, unsigned head, uint64_t query) const {
    return {shape.Head(dout, batch, head), query, 1.0F};
  }
  __device__ TileOperand<T> Keys(uint64_t batch, unsigned kv_head, uint64_t key) const {
    return {shape.Head(k, batch, kv_head), key, 1.0F};
  }
  __device__ TileOperand<T> Values(uint64_t batch, unsigned kv_head, uint64_t key) const {
    return {shape.Head(v, batch, kv_head), key, 1.0F};
  }

  // P = exp(S - lse) and dS = P (dP - delta), where dS still lacks the scale. Rows beyond the
  // sequence have lse and delta 0 and add exact zeros to every sum.
  __device__ void ScoreGradients(uint64_t batch, unsigned head, unsigned kv_head, uint64_t query,
                                 uint64_t key, Slice& left, Slice& right,
                                 float (&p)[kThreadRows][kThreadColumns],
                                 float (&ds)[kThreadRows][kThreadColumns]) const {
    TileProduct(shape, Queries(batch, head, query), Keys(batch, kv_head, key), left, right, p);
    if constexpr (kSees == Sees::kAll) {
      const uint64_t keys = shape.sequence - key;
      if (keys < kTile) MaskBeyond(static_cast<unsigned>(keys), p);
    } else {
      if (key == query) MaskAboveDiagonal(p);
      if constexpr (kSees == Sees::kWindow) MaskBeforeWindow(shape.window, query - key, p);
    }
    TileProduct(shape, Gradients(batch, head, query), Values(batch, kv_head, key), left, right, ds);
    const TilePlace me;
    const uint64_t rows = (batch * shape.heads + head) * shape.sequence;
#pragma unroll
    for (unsigned i = 0; i < kThreadRows; ++i) {
      const uint64_t token = query + me.y * kThreadRows + i;
      const bool exists = token < shape.sequence;
      const float row_lse = exists ? lse[rows + token] : 0.0F;
      const float row_delta = exists ? delta[rows + token] : 0.0F;
#pragma unroll
      for (unsigned j = 0; j < kThreadColumns; ++j) {
        p[i][j] = Exp(p[i][j] - row_lse);
        ds[i][j] = p[i][j] * (ds[i][j] - row_delta);
      }
    }
  }
};

__device__ inline void StoreScores(const float (&from)[kThreadRows][kThreadColumns], Scores& to) {
  const TilePlace me;
#pragma unroll
  for (unsigned i = 0; i < kThreadRows; ++i) {
#pragma unroll
    for (unsigned j = 0; j < kThreadColumns; ++j) {
      to[me.y * kThreadRows + i][me.x + j * kLanes] = from[i][j];
    }
  }
}

// A block of threads computes dQ of a block of queries of one head.
template <typename T, unsigned kSlab, Sees kSees = Sees::kBefore>
struct AttentionQueryGradient {
  static constexpr unsigned kThreads = kTileThreads;

  __device__ void Run() const {
    __shared__ Slice left;
    __shared__ Slice right;
    __shared__ Scores scores;
    __shared__ float rows[kStagedRows][kSlab];
    const TileShape& shape = read.shape;
    unsigned index = blockIdx.x;
    const unsigned column = index % shape.slabs * kSlab;
    index /= shape.slabs;
    const unsigned block = shape.blocks - 1 - index % shape.blocks;  // the longest rows first
    index /= shape.blocks;
    const unsigned head = index % shape.heads;
    const uint64_t batch = index / shape.heads;
    const unsigned kv_head = head / (shape.heads / shape.kv_heads);
    const uint64_t query = static_cast<uint64_t>(block) * kTile;
    const TilePlace me;
    float sums[kThreadRows][kSlab / kLanes] = {};
    const uint64_t last = shape.template LastKey<kSees>(query);
    for (uint64_t key = kSees == Sees::kWindow ? shape.FirstKey(query) : 0; key <= last;
         key += kTile) {
      float p[kThreadRows][kThreadColumns];
      float ds[kThreadRows][kThreadColumns];
      read.ScoreGradients(batch, head, kv_head, query, key, left, right, p, ds);
      StoreScores(ds, scores);
      AddTokens<kSlab>(
          shape, read.Keys(batch, kv_head, key), column,
          [&](unsigned i, unsigned token) { return scores[me.y * kThreadRows + i][token]; }, rows,
          sums);
    }
    StoreTile<kSlab>(shape, shape.Head(dq, batch, head), query, column, shape.scale, sums);
  }

  AttentionRead<T, kSees> read;
  HeadsView<T> dq;
};
GEMINID_KERNEL(geminid_attention_dq_fp32_64, AttentionQueryGradient<float, kNarrowSlab>);
GEMINID_KERNEL(geminid_attention_dq_fp32_128, AttentionQueryGradient<float, kWideSlab>);
GEMINID_KERNEL(geminid_attention_dq_bf16_64, AttentionQueryGradient<BFloat16, kNarrowSlab>);
GEMINID_KERNEL(geminid_attention_dq_bf16_128, AttentionQueryGradient<BFloat16, kWideSlab>);
GEMINID_KERNEL(geminid_attention_dq_window_fp32_64,
               AttentionQueryGradient<float, kNarrowSlab, Sees::kWindow>);
GEMINID_KERNEL(geminid_attention_dq_window_fp32_128,
               AttentionQueryGradient<float, kWideSlab, Sees::kWindow>);
GEMINID_KERNEL(geminid_attention_dq_window_bf16_64,
               AttentionQueryGradient<BFloat16, kNarrowSlab, Sees::kWindow>);
GEMINID_KERNEL(geminid_attention_dq_window_bf16_128,
               AttentionQueryGradient<BFloat16, kWideSlab, Sees::kWindow>);
GEMINID_KERNEL(geminid_attention_dq_all_fp32_64,
               AttentionQueryGradient<float, kNarrowSlab, Sees::kAll>);
GEMINID_KERNEL(geminid_attention_dq_all_fp32_128,
               AttentionQueryGradient<float, kWideSlab, Sees::kAll>);
GEMINID_KERNEL(geminid_attention_dq_all_bf16_64,
               AttentionQueryGradient<BFloat16, kNarrowSlab, Sees::kAll>);
GEMINID_KERNEL(geminid_attention_dq_all_bf16_128,
               AttentionQueryGradient<BFloat16, kWideSlab, Sees::kAll>);

// A block of threads computes dK and dV of a block of keys of one key/value head, over all query
// heads that read this head.
template <typename T, unsigned kSlab, Sees kSees = Sees::kBefore>
struct AttentionKeyGradient {
  static constexpr unsigned kThreads = kTileThreads;

  __device__ void Run() const {
    __shared__ Slice left;
    __shared__ Slice right;
    __shared__ Scores scores;
    __shared__ float rows[kStagedRows][kSlab];
    const TileShape& shape = read.shape;
    unsigned index = blockIdx.x;
    const unsigned column = index % shape.slabs * kSlab;
    index /= shape.slabs;
    const uint64_t key = static_cast<uint64_t>(index % shape.blocks) * kTile;
    index /= shape.blocks;
    const unsigned kv_head = index % shape.kv_heads;
    const uint64_t batch = index / shape.kv_heads;
    const unsigned group = shape.heads / shape.kv_heads;
    const TilePlace me;
    const auto of_key = [&](unsigned i, unsigned token) {
      return scores[token][me.y * kThreadRows + i];
    };
    float dk_sums[kThreadRows][kSlab / kLanes] = {};
    float dv_sums[kThreadRows][kSlab / kLanes] = {};
    for (unsigned head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (uint64_t query = kSees == Sees::kAll ? 0 : key; query < shape.sequence;
           query += kTile) {
        if (kSees == Sees::kWindow && shape.FirstKey(query) > key) break;
        float p[kThreadRows][kThreadColumns];
        float ds[kThreadRows][kThreadColumns];
        read.ScoreGradients(batch, head, kv_head, query, key, left, right, p, ds);
        StoreScores(p, scores);
        AddTokens<kSlab>(shape, read.Gradients(batch, head, query), column, of_key, rows, dv_sums);
        StoreScores(ds, scores);
        AddTokens<kSlab>(shape, read.Queries(batch, head, query), column, of_key, rows, dk_sums);
      }
    }
    StoreTile<kSlab>(shape, shape.Head(dk, batch, kv_head), key, column, 1.0F, dk_sums);
    StoreTile<kSlab>(shape, shape.Head(dv, batch, kv_head), key, column, 1.0F, dv_sums);
  }

  AttentionRead<T, kSees> read;
  HeadsView<T> dk;
  HeadsView<T> dv;
};
GEMINID_KERNEL(geminid_attention_dkv_fp32_64, AttentionKeyGradient<float, kNarrowSlab>);
GEMINID_KERNEL(geminid_attention_dkv_fp32_128, AttentionKeyGradient<float, kWideSlab>);
GEMINID_KERNEL(geminid_attention_dkv_bf16_64, AttentionKeyGradient<BFloat16, kNarrowSlab>);
GEMINID_KERNEL(geminid_attention_dkv_bf16_128, AttentionKeyGradient<BFloat16, kWideSlab>);
GEMINID_KERNEL(geminid_attention_dkv_window_fp32_64,
               AttentionKeyGradient<float, kNarrowSlab, Sees::kWindow>);
GEMINID_KERNEL(geminid_attention_dkv_window_fp32_128,
               AttentionKeyGradient<float, kWideSlab, Sees::kWindow>);
GEMINID_KERNEL(geminid_attention_dkv_window_bf16_64,
               AttentionKeyGradient<BFloat16, kNarrowSlab, Sees::kWindow>);
GEMINID_KERNEL(geminid_attention_dkv_window_bf16_128,
               AttentionKeyGradient<BFloat16, kWideSlab, Sees::kWindow>);
GEMINID_KERNEL(geminid_attention_dkv_all_fp32_64,
               AttentionKeyGradient<float, kNarrowSlab, Sees::kAll>);
GEMINID_KERNEL(geminid_attention_dkv_all_fp32_128,
               AttentionKeyGradient<float, kWideSlab, Sees::kAll>);
GEMINID_KERNEL(geminid_attention_dkv_all_bf16_64,
               AttentionKeyGradient<BFloat16, kNarrowSlab, Sees::kAll>);
GEMINID_KERNEL(geminid_attention_dkv_all_bf16_128,
               AttentionKeyGradient<BFloat16, kWideSlab, Sees::kAll>);

template <unsigned kSlab, Sees kSees, typename T>
Status LaunchGradients(const AttentionRead<T, kSees>& read, const AttentionShape& shape,
                       const HeadsView<T>& dq, const HeadsView<T>& dk, const HeadsView<T>& dv,
                       CudaStream stream) {
  const size_t blocks = shape.batch * read.shape.blocks * read.shape.slabs;
  const Status status = LaunchKernel(AttentionQueryGradient<T, kSlab, kSees>{read, dq},
                                     blocks * shape.heads, stream);
  if (status != Status::kOk) return status;
  return LaunchKernel(AttentionKeyGradient<T, kSlab, kSees>{read, dk, dv},
                      blocks * shape.kv_heads, stream);
}

template <unsigned kSlab, typename T>
Status LaunchBackward(const AttentionShape& shape, const AttentionSaved<T>& saved,
                      const HeadsView<T>& dq, const HeadsView<T>& dk, const HeadsView<T>& dv,
                      float* delta, CudaStream stream) {
  const TileShape tiles = ShapeOfTiles(shape, kSlab);
  const size_t rows = shape.batch * shape.heads * shape.sequence;
  using Delta = AttentionDelta<T>;
  const Status status = LaunchKernel(Delta{tiles, saved.out, saved.dout, delta, rows},
                                     BlocksFor(rows, Delta::kRowsPerBlock), stream);
  if (status != Status::kOk) return status;
  const auto launch = [&]<Sees kSees>() {
    return LaunchGradients<kSlab, kSees, T>(
        {tiles, saved.q, saved.k, saved.v, saved.dout, saved.lse, delta}, shape, dq, dk, dv,
        stream);
  };
  if (shape.window != 0) return launch.template operator()<Sees::kWindow>();
  if (!shape.causal) return launch.template operator()<Sees::kAll>();
  return launch.template operator()<Sees::kBefore>();
}

}  // namespace cuda

size_t AttentionCudaWorkspaceBytes(const AttentionShape& shape) {
  return RoundUpTo(shape.batch * shape.heads * shape.sequence * sizeof(float), kWorkspaceAlignment);
}

template <typename T>
Status AttentionBackwardCuda(const AttentionShape& shape, const AttentionSaved<T>& saved,
                             HeadsView<T> dq, HeadsView<T> dk, HeadsView<T> dv, void* workspace,
                             size_t workspace_bytes, CudaStream stream) {
  Status status = CheckAttentionBackward(shape, saved, dq, dk, dv);
  if (status != Status::kOk) return status;
  status = CheckWorkspace(workspace, workspace_bytes, AttentionCudaWorkspaceBytes(shape));
  if (status != Status::kOk) return status;
  auto* const delta = static_cast<float*>(workspace);
  if (shape.head_dim <= cuda::kNarrowSlab) {
    return cuda::LaunchBackward<cuda::kNarrowSlab>(shape, saved, dq, dk, dv, delta, stream);
  }
  return cuda::LaunchBackward<cuda::kWideSlab>(shape, saved, dq, dk, dv, delta, stream);
}

template Status AttentionBackwardCuda(const AttentionShape&, const AttentionSaved<float>&,
                                      HeadsView<float>, HeadsView<float>, HeadsView<float>, void*,
                                      size_t, CudaStream);
template Status AttentionBackwardCuda(const AttentionShape&, const AttentionSaved<BFloat16>&,
                                      HeadsView<BFloat16>, HeadsView<BFloat16>, HeadsView<BFloat16>,
                                      void*, size_t, CudaStream);

}  // namespace geminid::kernels
