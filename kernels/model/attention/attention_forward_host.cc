#include "kernels/model/attention/attention.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/model/attention/attention_forward_host.cc"
#include <cmath>

#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/model/attention/blocks-inl.h"
#include "kernels/model/attention/checks.h"
#include "kernels/model/attention/task.h"
#include "kernels/runtime/common/float_environment.h"
#include "kernels/runtime/parallel/tasks.h"
#include "kernels/runtime/simd/row_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

// The running softmax of one block of queries.
struct ForwardBlock {
  float* q;       // [64,width], scaled
  float* scores;  // [64,64]: S, then P
  float* out;     // [64,width], not yet divided by `sum`
  float* max;     // [64]
  float* sum;     // [64]
  // The rows that are computed, in whole tiles of the product.
  size_t first = 0;
  size_t last = kAttentionBlock;
};

// Replaces S by P = exp(S - max) and updates `max`, `sum` and `out`.
HWY_NOINLINE void SoftmaxBlock(const ForwardBlock& b, size_t width, bool first) {
  alignas(64) float correction[kAttentionBlock] = {};
  for (size_t r = b.first; r < b.last; ++r) {
    const float* row = b.scores + r * kAttentionBlock;
    F32x16 best = Load(row);
    for (size_t i = kWidth; i < kAttentionBlock; i += kWidth) best = Max(best, Load(row + i));
    const float old = b.max[r];
    b.max[r] = std::max(old, MaxLane(best));
    correction[r] = old - b.max[r];
  }
  for (size_t r = 0; r < kAttentionBlock; r += kWidth) {
    Store(Exp(Load(correction + r)), correction + r);
  }
  for (size_t r = b.first; r < b.last; ++r) {
    float* row = b.scores + r * kAttentionBlock;
    F32x16 sum = Set(0.0F);
    for (size_t i = 0; i < kAttentionBlock; i += kWidth) {
      const F32x16 p = Exp(Load(row + i) - Set(b.max[r]));
      Store(p, row + i);
      sum = sum + p;
    }
    b.sum[r] = b.sum[r] * correction[r] + SumLanes(sum);
    if (first) continue;
    float* out = b.out + r * width;
    for (size_t i = 0; i < width; i += kWidth) Store(Load(out + i) * Set(correction[r]), out + i);
  }
}

// Attends to all keys of one block of queries, which starts at token `query`. With a window, the
// block on the diagonal comes first: there every query sees a key, so every maximum is finite.
HWY_NOINLINE void AttendBlock(const AttentionShape& shape, const AttentionLayout& layout,
                              const float* k_transposed, const float* v, size_t query,
                              const ForwardBlock& b) {
  const size_t window = shape.window;
  for (size_t r = 0; r < kAttentionBlock; ++r) {
    b.max[r] = kMasked;
    b.sum[r] = 0.0F;
  }
  const size_t blocks = (EndOfKeys(shape, query) - FirstKeyOf(window, query)) / kAttentionBlock;
  for (size_t i = 0; i < blocks; ++i) {
    const size_t key = window == 0 ? i * kAttentionBlock : query - i * kAttentionBlock;
    const bool diagonal = shape.causal && key == query;
    BlockScores(layout.width, b.q + b.first * layout.width, k_transposed + key * layout.width,
                b.scores + b.first * kAttentionBlock, b.last - b.first);
    if (diagonal) MaskAboveDiagonal(b.scores);
    if (window != 0) MaskBeforeWindow(window, query - key, b.scores);
    if (!shape.causal) MaskBeyond(shape.sequence, key, b.scores);
    SoftmaxBlock(b, layout.width, i == 0);
    Product({.a = b.scores + b.first * kAttentionBlock,
             .a_row_stride = kAttentionBlock,
             .a_col_stride = 1,
             .b = v + key * layout.width,
             .b_stride = layout.width,
             .c = b.out + b.first * layout.width,
             .c_stride = layout.width,
             .m = b.last - b.first,
             .n = layout.width,
             .k = kAttentionBlock,
             .zeros = diagonal ? Zeros::kAboveDiagonal : Zeros::kNone,
             .accumulate = i != 0,
             .first_row = b.first});
  }
}

// The shape of the queries as rows of their own; the first row is first_query.
inline AttentionShape QueryRows(const AttentionShape& shape) {
  AttentionShape rows = shape;
  rows.sequence = shape.queries();
  return rows;
}

// Unpacks the queries of the block that starts at token `query`, and sets which rows exist.
template <typename T>
HWY_INLINE void LoadQueries(const AttentionShape& shape, const AttentionLayout& layout,
                            size_t query, const HeadRows<const T>& q, ForwardBlock* b) {
  const size_t begin = std::max(query, shape.first_query) - query;
  const size_t end = std::min(kAttentionBlock, shape.sequence - query);
  b->first = begin / kTileRows * kTileRows;
  b->last = (end + kTileRows - 1) / kTileRows * kTileRows;
  ZeroRow(b->q, begin * layout.width);
  Unpack(QueryRows(shape), q, query + begin - shape.first_query, kAttentionBlock - begin,
         layout.width, shape.scale, b->q + begin * layout.width);
}

// Divides by the sum, and writes the existing rows and their lse.
template <typename T>
HWY_INLINE void FinishBlock(const AttentionShape& shape, const AttentionLayout& layout,
                            size_t query, const ForwardBlock& b, const HeadRows<T>& out,
                            float* lse) {
  const size_t begin = std::max(query, shape.first_query) - query;
  const size_t end = std::min(kAttentionBlock, shape.sequence - query);
  for (size_t r = begin; r < end; ++r) {
    float* row = b.out + r * layout.width;
    const size_t at = query + r - shape.first_query;
    for (size_t i = 0; i < layout.width; i += kWidth) {
      Store(Load(row + i) / Set(b.sum[r]), row + i);
    }
    for (size_t i = 0; i < shape.head_dim; i += kWidth) {
      StoreN(Load(row + i), out.Row(at) + i, shape.head_dim - i);
    }
    lse[at] =
        static_cast<float>(static_cast<double>(b.max[r]) + std::log(static_cast<double>(b.sum[r])));
  }
}

template <typename T>
void ForwardLoop(const AttentionShape& shape, const HeadsView<const T>& q,
                 const HeadsView<const T>& k, const HeadsView<const T>& v, const HeadsView<T>& out,
                 float* lse, void* workspace) {
  const AttentionLayout layout(shape);
  FloatArena arena(workspace);
  float* k_rows = arena.Take(layout.head());
  float* k_transposed = arena.Take(layout.head());
  float* v_rows = arena.Take(layout.head());
  ForwardBlock block = {arena.Take(layout.block()), arena.Take(AttentionLayout::scores()),
                        arena.Take(layout.block()), arena.Take(kAttentionBlock),
                        arena.Take(kAttentionBlock)};
  const size_t group = shape.heads / shape.kv_heads;
  for (size_t b = 0; b < shape.batch; ++b) {
    for (size_t h = 0; h < shape.heads; ++h) {
      if (h % group == 0) {
        Unpack(shape, SelectHead(shape, k, b, h / group), 0, layout.rows, layout.width, 1.0F,
               k_rows);
        TransposeBlocks(layout, k_rows, k_transposed);
        Unpack(shape, SelectHead(shape, v, b, h / group), 0, layout.rows, layout.width, 1.0F,
               v_rows);
      }
      const auto q_head = SelectHead(QueryRows(shape), q, b, h);
      const size_t first = shape.first_query / kAttentionBlock * kAttentionBlock;
      for (size_t query = first; query < shape.sequence; query += kAttentionBlock) {
        LoadQueries(shape, layout, query, q_head, &block);
        AttendBlock(shape, layout, k_transposed, v_rows, query, block);
        FinishBlock(shape, layout, query, block, SelectHead(QueryRows(shape), out, b, h),
                    lse + (b * shape.heads + h) * shape.queries());
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {

size_t AttentionWorkspaceBytes(const AttentionShape& shape, size_t threads) {
  return threads * AttentionLayout(shape).floats() * sizeof(float);
}

template <typename T>
Status AttentionForward(const AttentionShape& shape, HeadsView<const T> q, HeadsView<const T> k,
                        HeadsView<const T> v, HeadsView<T> out, float* lse, void* workspace,
                        size_t workspace_bytes, ThreadPool* pool) {
  Status status = CheckAttentionForward(shape, q, k, v, out, lse);
  if (status != Status::kOk) return status;
  status =
      CheckWorkspace(workspace, workspace_bytes, AttentionWorkspaceBytes(shape, ThreadsOf(pool)));
  if (status != Status::kOk) return status;
  return RunTasks(pool, AttentionTask::Count(shape), [&](size_t index, size_t thread) {
    const AttentionTask task(shape, index);
    const ScopedFloatEnvironment environment;
    GEMINID_KERNEL_LOOP(ForwardLoop<T>)
    (task.shape, task.Queries(q), task.Keys(k), task.Keys(v), task.Queries(out), task.Lse(lse),
     task.Workspace(workspace, thread));
    return Status::kOk;
  });
}

template Status AttentionForward(const AttentionShape&, HeadsView<const float>,
                                 HeadsView<const float>, HeadsView<const float>, HeadsView<float>,
                                 float*, void*, size_t, ThreadPool*);
template Status AttentionForward(const AttentionShape&, HeadsView<const BFloat16>,
                                 HeadsView<const BFloat16>, HeadsView<const BFloat16>,
                                 HeadsView<BFloat16>, float*, void*, size_t, ThreadPool*);

}  // namespace geminid::kernels
#endif  // HWY_ONCE
