#include <cmath>

#include "kernels/model/attention/attention_cuda.h"
#include "kernels/model/attention/checks.h"
#include "kernels/model/attention/tiles.cuh"

namespace geminid::kernels {
namespace cuda {

// A block of threads computes a block of queries of one head.
template <typename T, unsigned kSlab, Sees kSees = Sees::kBefore>
struct AttendQueries {
  static constexpr unsigned kThreads = kTileThreads;

  // The running softmax of a thread's rows.
  struct State {
    float out[kThreadRows][kSlab / kLanes] = {};  // not yet divided by `sum`
    float max[kThreadRows];
    float sum[kThreadRows];
  };

  // Writes exp(S - max) to `p` and updates the state.
  __device__ static void Softmax(const float (&s)[kThreadRows][kThreadColumns], bool first,
                                 Scores& p, State& state) {
    const TilePlace me;
#pragma unroll
    for (unsigned i = 0; i < kThreadRows; ++i) {
      float best = s[i][0];
#pragma unroll
      for (unsigned j = 1; j < kThreadColumns; ++j) best = fmaxf(best, s[i][j]);
      const float max = fmaxf(state.max[i], MaxLane(best));
      const float correction = Exp(state.max[i] - max);
      float sum = 0;
#pragma unroll
      for (unsigned j = 0; j < kThreadColumns; ++j) {
        const float e = Exp(s[i][j] - max);
        p[me.y * kThreadRows + i][me.x + j * kLanes] = e;
        sum += e;
      }
      state.max[i] = max;
      state.sum[i] = state.sum[i] * correction + SumLanes(sum);
      if (first) continue;
#pragma unroll
      for (unsigned j = 0; j < kSlab / kLanes; ++j) state.out[i][j] *= correction;
    }
  }

  __device__ void Finish(uint64_t query, unsigned slab, float* head_lse, const TileHead<T>& to,
                         State& state) const {
    const TilePlace me;
#pragma unroll
    for (unsigned i = 0; i < kThreadRows; ++i) {
#pragma unroll
      for (unsigned j = 0; j < kSlab / kLanes; ++j) state.out[i][j] /= state.sum[i];
      const uint64_t token = query + me.y * kThreadRows + i;
      if (to.Has(token, shape.sequence) && me.x == 0 && slab == 0) {
        head_lse[token - shape.first_query] = static_cast<float>(
            static_cast<double>(state.max[i]) + log(static_cast<double>(state.sum[i])));
      }
    }
    StoreTile<kSlab>(shape, to, query, slab * kSlab, 1.0F, state.out);
  }

  __device__ void Run() const {
    __shared__ Slice left;
    __shared__ Slice right;
    __shared__ Scores p;
    __shared__ float rows[kStagedRows][kSlab];
    unsigned index = blockIdx.x;
    const unsigned slab = index % shape.slabs;
    index /= shape.slabs;
    const uint64_t block =  // the longest rows first
        shape.first_query / kTile + (shape.blocks - 1 - index % shape.blocks);
    index /= shape.blocks;
    const unsigned head = index % shape.heads;
    const uint64_t batch = index / shape.heads;
    const unsigned kv_head = head / (shape.heads / shape.kv_heads);
    const uint64_t query = block * kTile;
    const TileOperand<T> queries = {shape.QueryHead(q, batch, head), query, shape.scale};
    State state;
#pragma unroll
    for (unsigned i = 0; i < kThreadRows; ++i) {
      state.max[i] = -std::numeric_limits<float>::infinity();
      state.sum[i] = 0;
    }
    constexpr bool kWindow = kSees == Sees::kWindow;
    const uint64_t begin = kWindow ? shape.FirstKey(query) : 0;
    const uint64_t last = shape.template LastKey<kSees>(query);
    for (uint64_t next = begin; next <= last; next += kTile) {
      // With a window, the block on the diagonal comes first, as on the host.
      const uint64_t key = kWindow ? query + begin - next : next;
      float s[kThreadRows][kThreadColumns];
      TileProduct(shape, queries, {shape.Head(k, batch, kv_head), key, 1.0F}, left, right, s);
      if constexpr (kSees == Sees::kAll) {
        if (key == last) MaskBeyond(static_cast<unsigned>(shape.sequence - key), s);
      } else {
        if (key == query) MaskAboveDiagonal(s);
        if constexpr (kWindow) MaskBeforeWindow(shape.window, query - key, s);
      }
      Softmax(s, next == begin, p, state);
      const TilePlace me;
      AddTokens<kSlab>(
          shape, TileOperand<T>{shape.Head(v, batch, kv_head), key, 1.0F}, slab * kSlab,
          [&](unsigned i, unsigned token) { return p[me.y * kThreadRows + i][token]; }, rows,
          state.out);
    }
    Finish(query, slab, lse + (batch * shape.heads + head) * shape.queries(),
           shape.QueryHead(out, batch, head), state);
  }

  TileShape shape;
  HeadsView<const T> q;
  HeadsView<const T> k;
  HeadsView<const T> v;
  HeadsView<T> out;
  float* lse;
};
GEMINID_KERNEL(geminid_attention_forward_fp32_64, AttendQueries<float, kNarrowSlab>);
GEMINID_KERNEL(geminid_attention_forward_fp32_128, AttendQueries<float, kWideSlab>);
GEMINID_KERNEL(geminid_attention_forward_bf16_64, AttendQueries<BFloat16, kNarrowSlab>);
GEMINID_KERNEL(geminid_attention_forward_bf16_128, AttendQueries<BFloat16, kWideSlab>);
GEMINID_KERNEL(geminid_attention_forward_window_fp32_64,
               AttendQueries<float, kNarrowSlab, Sees::kWindow>);
GEMINID_KERNEL(geminid_attention_forward_window_fp32_128,
               AttendQueries<float, kWideSlab, Sees::kWindow>);
GEMINID_KERNEL(geminid_attention_forward_window_bf16_64,
               AttendQueries<BFloat16, kNarrowSlab, Sees::kWindow>);
GEMINID_KERNEL(geminid_attention_forward_window_bf16_128,
               AttendQueries<BFloat16, kWideSlab, Sees::kWindow>);
GEMINID_KERNEL(geminid_attention_forward_all_fp32_64,
               AttendQueries<float, kNarrowSlab, Sees::kAll>);
GEMINID_KERNEL(geminid_attention_forward_all_fp32_128, AttendQueries<float, kWideSlab, Sees::kAll>);
GEMINID_KERNEL(geminid_attention_forward_all_bf16_64,
               AttendQueries<BFloat16, kNarrowSlab, Sees::kAll>);
GEMINID_KERNEL(geminid_attention_forward_all_bf16_128,
               AttendQueries<BFloat16, kWideSlab, Sees::kAll>);

template <unsigned kSlab, typename T>
Status LaunchAttend(const AttentionShape& shape, const HeadsView<const T>& q,
                    const HeadsView<const T>& k, const HeadsView<const T>& v,
                    const HeadsView<T>& out, float* lse, CudaStream stream) {
  const TileShape tiles = ShapeOfTiles(shape, kSlab);
  const size_t blocks = shape.batch * shape.heads * tiles.blocks * tiles.slabs;
  if (shape.window != 0) {
    return LaunchKernel(AttendQueries<T, kSlab, Sees::kWindow>{tiles, q, k, v, out, lse}, blocks,
                        stream);
  }
  if (!shape.causal) {
    return LaunchKernel(AttendQueries<T, kSlab, Sees::kAll>{tiles, q, k, v, out, lse}, blocks,
                        stream);
  }
  return LaunchKernel(AttendQueries<T, kSlab>{tiles, q, k, v, out, lse}, blocks, stream);
}

}  // namespace cuda

template <typename T>
Status AttentionForwardCuda(const AttentionShape& shape, HeadsView<const T> q, HeadsView<const T> k,
                            HeadsView<const T> v, HeadsView<T> out, float* lse, CudaStream stream) {
  const Status status = CheckAttentionForward(shape, q, k, v, out, lse);
  if (status != Status::kOk) return status;
  if (shape.head_dim <= cuda::kNarrowSlab) {
    return cuda::LaunchAttend<cuda::kNarrowSlab>(shape, q, k, v, out, lse, stream);
  }
  return cuda::LaunchAttend<cuda::kWideSlab>(shape, q, k, v, out, lse, stream);
}

template Status AttentionForwardCuda(const AttentionShape&, HeadsView<const float>,
                                     HeadsView<const float>, HeadsView<const float>,
                                     HeadsView<float>, float*, CudaStream);
template Status AttentionForwardCuda(const AttentionShape&, HeadsView<const BFloat16>,
                                     HeadsView<const BFloat16>, HeadsView<const BFloat16>,
                                     HeadsView<BFloat16>, float*, CudaStream);

}  // namespace geminid::kernels
