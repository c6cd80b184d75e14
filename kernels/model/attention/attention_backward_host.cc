#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/model/attention/attention_backward_host.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/model/attention/attention.h"
#include "kernels/model/attention/blocks-inl.h"
#include "kernels/model/attention/checks.h"
#include "kernels/model/attention/task.h"
#include "kernels/runtime/common/float_environment.h"
#include "kernels/runtime/parallel/tasks.h"
#include "kernels/runtime/simd/row_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

// One key/value head, unpacked.
struct KeyValueHead {
  float* k;             // [rows,width]
  float* k_transposed;  // blocks [width,64]
  float* v_transposed;  // blocks [width,64]
  float* dk;            // [rows,width], running sums
  float* dv;            // [rows,width], running sums
};

// One block of queries of one query head.
struct BackwardBlock {
  float* q;      // [64,width], scaled
  float* dout;   // [64,width]
  float* dq;     // [64,width], running sum, without the scale
  float* p;      // [64,64]: S, then P
  float* ds;     // [64,64]: dP, then dS / scale
  float* lse;    // [64]
  float* delta;  // [64]: rowsum(dO * O)
};

// Unpacks the queries from token `query` on. Rows beyond the sequence get dO = 0 and lse = +0, so
// they add exact zeros to every sum.
template <typename T>
HWY_INLINE void LoadBlock(const AttentionShape& shape, const AttentionLayout& layout,
                          const AttentionSaved<T>& saved, size_t batch, size_t head, size_t query,
                          const BackwardBlock& b) {
  const auto out = SelectHead(shape, saved.out, batch, head);
  const auto dout = SelectHead(shape, saved.dout, batch, head);
  const float* lse = saved.lse + (batch * shape.heads + head) * shape.sequence;
  Unpack(shape, SelectHead(shape, saved.q, batch, head), query, kAttentionBlock, layout.width,
         shape.scale, b.q);
  Unpack(shape, dout, query, kAttentionBlock, layout.width, 1.0F, b.dout);
  ZeroRow(b.dq, layout.block());
  for (size_t r = 0; r < kAttentionBlock; ++r) {
    const size_t token = query + r;
    b.lse[r] = 0.0F;
    b.delta[r] = 0.0F;
    if (token >= shape.sequence) continue;
    F32x16 sum = Set(0.0F);
    for (size_t i = 0; i < shape.head_dim; i += kWidth) {
      const size_t n = shape.head_dim - i;
      sum = MulAdd(LoadN(out.Row(token) + i, n), LoadN(dout.Row(token) + i, n), sum);
    }
    b.lse[r] = lse[token];
    b.delta[r] = SumLanes(sum);
  }
}

// P = exp(S - lse), dS = P (dP - delta).
HWY_NOINLINE void SoftmaxGradient(const BackwardBlock& b) {
  for (size_t r = 0; r < kAttentionBlock; ++r) {
    float* p_row = b.p + r * kAttentionBlock;
    float* ds_row = b.ds + r * kAttentionBlock;
    for (size_t i = 0; i < kAttentionBlock; i += kWidth) {
      const F32x16 p = Exp(Load(p_row + i) - Set(b.lse[r]));
      Store(p, p_row + i);
      Store(p * (Load(ds_row + i) - Set(b.delta[r])), ds_row + i);
    }
  }
}

// to[64,width] += left^T[64,64] right[64,width], for the keys' gradients.
HWY_NOINLINE void AddTransposed(size_t width, const float* left, const float* right, bool diagonal,
                                float* to) {
  Product({.a = left,
           .a_row_stride = 1,
           .a_col_stride = kAttentionBlock,
           .b = right,
           .b_stride = width,
           .c = to,
           .c_stride = width,
           .m = kAttentionBlock,
           .n = width,
           .k = kAttentionBlock,
           .zeros = diagonal ? Zeros::kBelowDiagonal : Zeros::kNone,
           .accumulate = true});
}

// Adds the contribution of keys [key, key + 64) to all three gradients, for queries [query, query +
// 64).
HWY_NOINLINE void BackwardKeys(const AttentionShape& shape, const AttentionLayout& layout,
                               const KeyValueHead& kv, size_t key, size_t query,
                               const BackwardBlock& b) {
  const bool diagonal = shape.causal && key == query;
  const size_t at = key * layout.width;
  BlockScores(layout.width, b.q, kv.k_transposed + at, b.p);
  if (diagonal) MaskAboveDiagonal(b.p);
  if (shape.window != 0) MaskBeforeWindow(shape.window, query - key, b.p);
  if (!shape.causal) MaskBeyond(shape.sequence, key, b.p);
  BlockScores(layout.width, b.dout, kv.v_transposed + at, b.ds);
  SoftmaxGradient(b);
  AddTransposed(layout.width, b.p, b.dout, diagonal, kv.dv + at);
  AddTransposed(layout.width, b.ds, b.q, diagonal, kv.dk + at);
  Product({.a = b.ds,
           .a_row_stride = kAttentionBlock,
           .a_col_stride = 1,
           .b = kv.k + at,
           .b_stride = layout.width,
           .c = b.dq,
           .c_stride = layout.width,
           .m = kAttentionBlock,
           .n = layout.width,
           .k = kAttentionBlock,
           .zeros = diagonal ? Zeros::kAboveDiagonal : Zeros::kNone,
           .accumulate = true});
}

template <typename T>
HWY_INLINE void LoadKeyValueHead(const AttentionShape& shape, const AttentionLayout& layout,
                                 const AttentionSaved<T>& saved, size_t batch, size_t head,
                                 const KeyValueHead& kv) {
  // V is needed only transposed; dv's memory holds V's rows until the transpose is done.
  Unpack(shape, SelectHead(shape, saved.v, batch, head), 0, layout.rows, layout.width, 1.0F, kv.dv);
  TransposeBlocks(layout, kv.dv, kv.v_transposed);
  Unpack(shape, SelectHead(shape, saved.k, batch, head), 0, layout.rows, layout.width, 1.0F, kv.k);
  TransposeBlocks(layout, kv.k, kv.k_transposed);
  ZeroRow(kv.dk, layout.head());
  ZeroRow(kv.dv, layout.head());
}

template <typename T>
void BackwardLoop(const AttentionShape& shape, const AttentionSaved<T>& saved,
                  const HeadsView<T>& dq, const HeadsView<T>& dk, const HeadsView<T>& dv,
                  void* workspace) {
  const AttentionLayout layout(shape);
  FloatArena arena(workspace);
  const KeyValueHead kv = {arena.Take(layout.head()), arena.Take(layout.head()),
                           arena.Take(layout.head()), arena.Take(layout.head()),
                           arena.Take(layout.head())};
  const BackwardBlock block = {arena.Take(layout.block()),
                               arena.Take(layout.block()),
                               arena.Take(layout.block()),
                               arena.Take(AttentionLayout::scores()),
                               arena.Take(AttentionLayout::scores()),
                               arena.Take(kAttentionBlock),
                               arena.Take(kAttentionBlock)};
  const size_t group = shape.heads / shape.kv_heads;
  for (size_t i = 0; i < shape.batch * shape.kv_heads; ++i) {
    const size_t b = i / shape.kv_heads;
    const size_t kv_head = i % shape.kv_heads;
    LoadKeyValueHead(shape, layout, saved, b, kv_head, kv);
    for (size_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      for (size_t query = 0; query < shape.sequence; query += kAttentionBlock) {
        LoadBlock(shape, layout, saved, b, h, query, block);
        const size_t first = FirstKeyOf(shape.window, query);
        const size_t end = EndOfKeys(shape, query);
        for (size_t key = first; key < end; key += kAttentionBlock) {
          BackwardKeys(shape, layout, kv, key, query, block);
        }
        Pack(shape, block.dq, query, layout.width, shape.scale, SelectHead(shape, dq, b, h));
      }
    }
    for (size_t key = 0; key < shape.sequence; key += kAttentionBlock) {
      const size_t at = key * layout.width;
      Pack(shape, kv.dk + at, key, layout.width, 1.0F, SelectHead(shape, dk, b, kv_head));
      Pack(shape, kv.dv + at, key, layout.width, 1.0F, SelectHead(shape, dv, b, kv_head));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {

template <typename T>
Status AttentionBackward(const AttentionShape& shape, const AttentionSaved<T>& saved,
                         HeadsView<T> dq, HeadsView<T> dk, HeadsView<T> dv, void* workspace,
                         size_t workspace_bytes, ThreadPool* pool) {
  Status status = CheckAttentionBackward(shape, saved, dq, dk, dv);
  if (status != Status::kOk) return status;
  status =
      CheckWorkspace(workspace, workspace_bytes, AttentionWorkspaceBytes(shape, ThreadsOf(pool)));
  if (status != Status::kOk) return status;
  return RunTasks(pool, AttentionTask::Count(shape), [&](size_t index, size_t thread) {
    const AttentionTask task(shape, index);
    const AttentionSaved<T> part = {.q = task.Queries(saved.q),
                                    .k = task.Keys(saved.k),
                                    .v = task.Keys(saved.v),
                                    .out = task.Queries(saved.out),
                                    .dout = task.Queries(saved.dout),
                                    .lse = task.Lse(saved.lse)};
    const ScopedFloatEnvironment environment;
    GEMINID_KERNEL_LOOP(BackwardLoop<T>)
    (task.shape, part, task.Queries(dq), task.Keys(dk), task.Keys(dv),
     task.Workspace(workspace, thread));
    return Status::kOk;
  });
}

template Status AttentionBackward(const AttentionShape&, const AttentionSaved<float>&,
                                  HeadsView<float>, HeadsView<float>, HeadsView<float>, void*,
                                  size_t, ThreadPool*);
template Status AttentionBackward(const AttentionShape&, const AttentionSaved<BFloat16>&,
                                  HeadsView<BFloat16>, HeadsView<BFloat16>, HeadsView<BFloat16>,
                                  void*, size_t, ThreadPool*);

}  // namespace geminid::kernels
#endif  // HWY_ONCE
