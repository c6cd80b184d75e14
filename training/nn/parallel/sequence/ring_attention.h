// Causal attention over a sequence that is partitioned over ranks: keys and values travel in a ring
// (Ring Attention, arXiv:2310.01889; partitioned as for Llama 3, arXiv:2407.21783).
#ifndef GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_RING_ATTENTION_H_
#define GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_RING_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/async_communicator.h"
#include "kernels/model/attention/attention.h"
#include "kernels/runtime/parallel/thread_pool.h"
#include "training/nn/parallel/memory.h"
#include "training/nn/parallel/sequence/visible_attention.h"
#include "training/nn/parallel/sequence/zigzag.h"

namespace geminid::collectives {

// The shape over all ranks. Unlike an exchange of heads, a ring works with any number of heads.
struct RingShape {
  size_t batch = 0;
  size_t sequence = 0;
  size_t heads = 0;
  size_t kv_heads = 0;  // divides heads
  size_t head_dim = 0;
  float scale = 0;
};

// Rank r has the tokens that Zigzag gives it. Each rank adds up the attention of its queries to its
// own keys, then to those of rank r-1, r-2 and so on. It receives keys from one neighbour and sends
// them to the other. The softmaxes over each rank's keys are merged by their log-sum-exp. So
// results differ from attention on one rank by rounding, and have the same bits on every run. In
// fp32.
//
// With n = batch * tokens * kv_heads * head_dim of a rank and P ranks, each rank receives from one
// neighbour and sends to the other
//   forward   2 (P-1) n elements: keys and values
//   backward  2 (P-1) n + 2 P n: keys and values again, and their gradients, back to the owner
// The next keys and values, and the gradients of the previous ones, travel during the attention to
// the current ones. Every rank does the same work in every step, except for its own keys, of which
// half are visible.
//
// RingAttentionBytes is the memory of a pass:
//   buffers   4 n elements; in the backward pass 8 n, and one number per query
//   work      the larger of the kernel's workspace and a tile of scores (visible_attention.h),
//             the latter with 2 n more in the backward pass
// If that is refused, a pass returns RESOURCE_EXHAUSTED and tells the other ranks. One thread at a
// time.
class RingAttention {
 public:
  // INVALID_ARGUMENT if 2 P does not divide the sequence, or kv_heads the heads. `ranks` and
  // `pool`, which may be null, outlive this object.
  static absl::StatusOr<RingAttention> Make(const RingShape& shape, AsyncCommunicator& ranks,
                                            kernels::ThreadPool* pool = nullptr);

  const RingShape& shape() const { return shape_; }
  // The tokens of one rank in each batch entry.
  size_t tokens() const { return zigzag_.tokens(); }

  // q, out [batch, tokens, heads, head_dim]; k, v [batch, tokens, kv_heads, head_dim];
  // lse [batch, heads, tokens], the logarithm of the sum of the exponentials of a query's scores.
  absl::Status Forward(std::span<const float> q, std::span<const float> k, std::span<const float> v,
                       std::span<float> out, std::span<float> lse, Memory& memory = HeapMemory());

  // The inputs and results of the forward pass.
  struct Saved {
    std::span<const float> q, k, v, out, lse;
  };
  // Overwrites dq, dk, dv.
  absl::Status Backward(const Saved& saved, std::span<const float> dout, std::span<float> dq,
                        std::span<float> dk, std::span<float> dv, Memory& memory = HeapMemory());

 private:
  RingAttention(const RingShape& shape, AsyncCommunicator& ranks, kernels::ThreadPool* pool);

  size_t query_elements() const { return shape_.batch * tokens() * shape_.heads * shape_.head_dim; }
  size_t key_elements() const {
    return shape_.batch * tokens() * shape_.kv_heads * shape_.head_dim;
  }
  size_t lse_elements() const { return shape_.batch * tokens() * shape_.heads; }
  kernels::AttentionShape Own() const;

  // Which of this rank's queries see which keys of another rank.
  struct Visible {
    size_t first_query = 0;
    size_t queries = 0;
    size_t keys = 0;  // from the first key on
  };
  Visible VisibleOf(int owner) const;
  // The rank whose keys this rank has in a step.
  int OwnerIn(int step) const;
  // The rows of one head in this rank's tensor, from token `first` on.
  template <class T>
  HeadRows<T> RowsOf(T* tensor, size_t heads, size_t entry, size_t head, size_t first,
                     size_t count) const;

  // A buffer that travels in the ring, and one into which the next comes.
  struct Travelling {
    FloatBlock here, coming;
    Pending arrival;
  };
  // The buffers of a pass. With one rank nothing travels.
  struct Room {
    Travelling keys;       // K, then V
    Travelling gradients;  // of the keys and values, as far as they are added up
    FloatBlock delta;
    // Workspace for attention to the own keys, then for attention to others' keys.
    FloatBlock work;
    std::span<float> shares;  // this rank's contribution to the gradients of one step
    VisibleAttention::Room visible;
  };
  absl::StatusOr<Room> TakeForward(Memory& memory) const;
  absl::StatusOr<Room> TakeBackward(Memory& memory) const;
  absl::StatusOr<Travelling> TakeTravelling(Memory& memory, const char* what) const;
  // Enough for `elements` elements and for the kernel, which do not use it at the same time.
  absl::StatusOr<FloatBlock> TakeWork(Memory& memory, size_t elements) const;

  absl::Status RunForward(std::span<const float> q, std::span<const float> k,
                          std::span<const float> v, std::span<float> out, std::span<float> lse,
                          Memory& memory);
  absl::Status RunBackward(const Saved& saved, std::span<const float> dout, std::span<float> dq,
                           std::span<float> dk, std::span<float> dv, Memory& memory);
  // Calls `use_own` with this rank's own keys and values, then `use` for each further step.
  absl::Status OverAllKeys(Travelling& keys, std::span<const float> k, std::span<const float> v,
                           absl::FunctionRef<absl::Status()> use_own,
                           absl::FunctionRef<absl::Status(int)> use);
  absl::Status AttendToOwn(const Room& room, std::span<const float> q, std::span<const float> k,
                           std::span<const float> v, std::span<float> out, std::span<float> lse);
  absl::Status GradientsOfOwn(const Room& room, const Saved& saved, std::span<const float> dout,
                              std::span<float> dq, std::span<float> dk, std::span<float> dv);
  absl::Status MergeVisible(const Room& room, int owner, std::span<const float> q,
                            std::span<float> out, std::span<float> lse);
  absl::Status AddToThoseOfOthers(Room& room, int owner, const Saved& saved,
                                  std::span<const float> dout, std::span<float> dq);
  absl::Status AddVisible(const Room& room, int owner, const Saved& saved,
                          std::span<const float> dout, std::span<float> dq);
  // Begins to send a buffer to the next rank and to receive the previous rank's.
  void Pass(Travelling& tensors);
  // Waits for the received buffer, which then becomes `here`.
  static absl::Status Arrive(Travelling& tensors);

  RingShape shape_;
  Zigzag zigzag_;
  AsyncCommunicator* ranks_;
  kernels::ThreadPool* pool_;
  VisibleAttention visible_;
};

// The bytes that each of `ranks` ranks takes while a pass runs, without the alignment of blocks and
// the workspace of matrix products.
enum class RingTurn : uint8_t { kForward, kBackward };
size_t RingAttentionBytes(const RingShape& shape, int ranks, RingTurn turn, size_t threads);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_RING_ATTENTION_H_
