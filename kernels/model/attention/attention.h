// Multi-head attention in blocks (FlashAttention, arXiv:2205.14135 and 2307.08691), causal or over
// whole sequences. No score matrix is stored: memory beyond inputs and outputs is O(sequence).
//
//   S = scale Q K^T, masked to query - window < key <= query;  P = softmax(S);  O = P V
//   backward: P from the saved lse; D = rowsum(dO * O); dV = P^T dO; dS = P * (dO V^T - D);
//             dQ = scale dS K; dK = scale dS^T Q
//
// All arithmetic is fp32; results are rounded to T once. Query head h reads key/value head
// h / (heads / kv_heads) (grouped-query attention). Each key/value head of a batch entry is one
// task with a fixed order of sums. So the bits are the same on every run, on any number of threads
// and, with FMA, on every instruction set.
// instruction set.
#ifndef GEMINID_KERNELS_MODEL_ATTENTION_ATTENTION_H_
#define GEMINID_KERNELS_MODEL_ATTENTION_ATTENTION_H_

#include <cstddef>

#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/parallel/thread_pool.h"

namespace geminid::kernels {

// The largest supported head_dim; it bounds the size of the block buffers.
inline constexpr size_t kAttentionHeadDimMax = 256;

struct AttentionShape {
  size_t batch = 0;
  size_t sequence = 0;  // tokens per batch entry
  size_t heads = 0;
  size_t kv_heads = 0;  // divides heads
  size_t head_dim = 0;  // 1 .. kAttentionHeadDimMax
  float scale = 0;      // usually 1/sqrt(head_dim); finite and positive
  // Forward only: queries, out and lse begin with this token; earlier tokens were computed before.
  // A token has the same bits whether earlier tokens are computed with it or not.
  size_t first_query = 0;

  // The most keys that a query sees; its own is the last one (sliding windows, as in Mistral,
  // arXiv:2310.06825). 0: all earlier keys.
  size_t window = 0;

  // A query sees the keys up to its own. If false: all keys of its sequence (an encoder), without
  // first_query and window.
  bool causal = true;

  size_t queries() const { return sequence - first_query; }  // per batch entry
};

// A tensor [batch * sequence, heads, head_dim]. Tokens are `token_stride` elements apart; heads are
// contiguous within a token. A fused [.., q|k|v] activation has three such views.
template <typename T>
struct HeadsView {
  T* data = nullptr;
  size_t token_stride = 0;
};

// Bytes of workspace for either pass: 4 (5 S D + 192 D + 8320) for each thread. S is the sequence
// in whole blocks of 64, and D is head_dim in whole vectors of 16. At 1024 x 64: 1.3 MiB.
size_t AttentionWorkspaceBytes(const AttentionShape& shape, size_t threads = 1);

// Writes out[batch*queries, heads, head_dim] and lse[batch, heads, queries] (log of the sum of the
// exponentials of a row of S). `workspace` is 64-byte aligned. `out` overlaps no input. Runs on the
// pool's threads, or on the calling thread.
template <typename T>
Status AttentionForward(const AttentionShape& shape, HeadsView<const T> q, HeadsView<const T> k,
                        HeadsView<const T> v, HeadsView<T> out, float* lse, void* workspace,
                        size_t workspace_bytes, ThreadPool* pool = nullptr);

// The inputs of the forward pass, its results, and the gradient of `out`.
template <typename T>
struct AttentionSaved {
  HeadsView<const T> q, k, v, out, dout;
  const float* lse = nullptr;
};

// Overwrites dq, dk, dv (shapes of q, k, v; their own strides). They overlap no input.
template <typename T>
Status AttentionBackward(const AttentionShape& shape, const AttentionSaved<T>& saved,
                         HeadsView<T> dq, HeadsView<T> dk, HeadsView<T> dv, void* workspace,
                         size_t workspace_bytes, ThreadPool* pool = nullptr);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ATTENTION_ATTENTION_H_
