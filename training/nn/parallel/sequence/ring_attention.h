// Causal attention over a sequence that is cut over ranks, with keys and values going round (Ring
// Attention, arXiv:2310.01889; cut as for the training of Llama 3, arXiv:2407.21783).
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

// Of the whole. Unlike an exchange of heads this works with any number of heads.
struct RingShape {
  size_t batch = 0;
  size_t sequence = 0;
  size_t heads = 0;
  size_t kv_heads = 0;  // divides heads
  size_t head_dim = 0;
  float scale = 0;
};

// Rank r has the tokens that Zigzag says. Each adds up the attention of its queries to its own
// keys, to those of rank r-1, r-2 and so on, which come from one neighbour and go to the other. The
// softmaxes over the keys of one rank each are merged by their log-sum-exp, so results differ from
// attention in one place by rounding, and are the same bits on every run. In fp32.
//
// With n = batch * tokens * kv_heads * head_dim of a rank and P ranks, each rank receives from one
// other and sends to one other
//   forward   2 (P-1) n elements: keys and values
//   backward  2 (P-1) n + 2 P n: these again, and their gradients, which go all the way home
// Keys and values, and the gradients of those before, travel beside the attention to those that are
// here. Apart from one's own keys, which are half visible, every rank does the same work in every
// step. Takes 4 n elements while it runs, in the backward pass 8 n and a number for each query, and
// beside them the larger of what the kernel needs and a tile of scores (visible_attention.h), with
// 2 n more in the backward pass: RingAttentionBytes. RESOURCE_EXHAUSTED where that is refused,
// which the other ranks are told. One thread at a time.
class RingAttention {
 public:
  // INVALID_ARGUMENT where 2 P does not divide the sequence, or kv_heads the heads. `ranks` and
  // `pool`, which may be null, outlive this.
  static absl::StatusOr<RingAttention> Make(const RingShape& shape, AsyncCommunicator& ranks,
                                            kernels::ThreadPool* pool = nullptr);

  const RingShape& shape() const { return shape_; }
  // Of one rank per batch entry.
  size_t tokens() const { return zigzag_.tokens(); }

  // q, out [batch, tokens, heads, head_dim]; k, v [batch, tokens, kv_heads, head_dim];
  // lse [batch, heads, tokens], the logarithm of the sum of the exponentials of a query's scores.
  absl::Status Forward(std::span<const float> q, std::span<const float> k, std::span<const float> v,
                       std::span<float> out, std::span<float> lse, Memory& memory = HeapMemory());

  // The inputs of the forward pass and its results.
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
    size_t keys = 0;  // from the first on
  };
  Visible VisibleOf(int owner) const;
  // Whose keys this rank has in a step.
  int OwnerIn(int step) const;
  // The rows of one head that this rank's tensor has from `first` on.
  template <class T>
  HeadRows<T> RowsOf(T* tensor, size_t heads, size_t entry, size_t head, size_t first,
                     size_t count) const;

  // What a rank has of what goes round, and room for what comes in its place.
  struct Travelling {
    FloatBlock here, coming;
    Pending arrival;
  };
  // What a pass works in. Where there is one rank nothing travels.
  struct Room {
    Travelling keys;       // K, then V
    Travelling gradients;  // of those, as far as they have been added up
    FloatBlock delta;
    // What attention to the own keys works in, and then, in the same place, that to others'.
    FloatBlock work;
    std::span<float> shares;  // of this rank in those of one step
    VisibleAttention::Room visible;
  };
  absl::StatusOr<Room> TakeForward(Memory& memory) const;
  absl::StatusOr<Room> TakeBackward(Memory& memory) const;
  absl::StatusOr<Travelling> TakeTravelling(Memory& memory, const char* what) const;
  // For as many elements beside what the kernel needs.
  absl::StatusOr<FloatBlock> TakeWork(Memory& memory, size_t elements) const;

  absl::Status RunForward(std::span<const float> q, std::span<const float> k,
                          std::span<const float> v, std::span<float> out, std::span<float> lse,
                          Memory& memory);
  absl::Status RunBackward(const Saved& saved, std::span<const float> dout, std::span<float> dq,
                           std::span<float> dk, std::span<float> dv, Memory& memory);
  // `use_own` with this rank's own keys and values here, then `use` with those of each step.
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
  // Begins to give what is here to the next rank and to take the one before's.
  void Pass(Travelling& tensors);
  // Until that has come, which is then here.
  static absl::Status Arrive(Travelling& tensors);

  RingShape shape_;
  Zigzag zigzag_;
  AsyncCommunicator* ranks_;
  kernels::ThreadPool* pool_;
  VisibleAttention visible_;
};

// What a rank of `ranks` takes while it runs, but for the alignment of blocks and what products ask
// for.
enum class RingTurn : uint8_t { kForward, kBackward };
size_t RingAttentionBytes(const RingShape& shape, int ranks, RingTurn turn, size_t threads);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_RING_ATTENTION_H_
