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
#include "geminid/pending.h"
#include "kernels/model/attention/attention.h"
#include "training/nn/parallel/layer_math.h"
#include "training/nn/parallel/memory.h"
#include "training/nn/parallel/sequence/ring_ranks.h"
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
// them to the other. The kernel of attention computes one chunk of queries and one of keys at a
// time. The softmaxes over chunks are merged by their log-sum-exp. So results differ from attention
// on one rank by rounding, and have the same bits on every run. In fp32.
//
// With n = batch * tokens * kv_heads * head_dim of a rank and P ranks, each rank receives from one
// neighbour and sends to the other
//   forward   2 (P-1) n elements: keys and values
//   backward  2 (P-1) n + 2 P n: keys and values again, and their gradients, back to the owner
// On the host the next keys and values, and the gradients of the previous ones, travel during the
// attention to the current ones. Every rank does the same work in every step, except for its own
// keys, of which half are visible.
//
// RingAttentionBytes is the memory of a pass on the host:
//   buffers   4 n elements; in the backward pass 10 n
//   work      the results of one chunk of one batch entry, and the kernel's workspace for it
// If that is refused, a pass returns RESOURCE_EXHAUSTED and tells the other ranks. Those whose pass
// was complete get the error in their next one. One thread at a time.
class RingAttention {
 public:
  // INVALID_ARGUMENT if 2 P does not divide the sequence, or kv_heads the heads. `ranks` outlives
  // this object.
  static absl::StatusOr<RingAttention> Make(const RingShape& shape, RingRanks& ranks);

  const RingShape& shape() const { return shape_; }
  // The tokens of one rank in each batch entry.
  size_t tokens() const { return zigzag_.tokens(); }

  // q, out [batch, tokens, heads, head_dim]; k, v [batch, tokens, kv_heads, head_dim];
  // lse [batch, 2 chunks, heads, tokens of a chunk], the logarithm of the sum of the exponentials
  // of a query's scores.
  absl::Status Forward(const LayerPlace& place, std::span<const float> q, std::span<const float> k,
                       std::span<const float> v, std::span<float> out, std::span<float> lse);

  // The inputs and results of the forward pass.
  struct Saved {
    std::span<const float> q, k, v, out, lse;
  };
  // Overwrites dq, dk, dv.
  absl::Status Backward(const LayerPlace& place, const Saved& saved, std::span<const float> dout,
                        std::span<float> dq, std::span<float> dk, std::span<float> dv);

 private:
  RingAttention(const RingShape& shape, RingRanks& ranks);

  size_t query_elements() const { return shape_.batch * tokens() * shape_.heads * shape_.head_dim; }
  size_t key_elements() const {
    return shape_.batch * tokens() * shape_.kv_heads * shape_.head_dim;
  }
  size_t lse_elements() const { return shape_.batch * tokens() * shape_.heads; }

  // A chunk of this rank's queries that sees a chunk of keys: by number, 0 or 1.
  struct Pair {
    size_t queries = 0;
    size_t keys = 0;
    bool is_diagonal = false;       // the chunks are the same, so attention is causal
    bool begins_queries = false;    // no pair before has these queries
    bool begins_gradients = false;  // no pair of this step before has these keys
  };
  std::span<const Pair> PairsOf(int owner) const;
  // The rank whose keys this rank has in a step.
  int OwnerIn(int step) const;
  // Calls `call` for each pair and batch entry.
  static absl::Status ForEach(std::span<const Pair> pairs, size_t batch,
                              absl::FunctionRef<absl::Status(const Pair&, size_t entry)> call);
  // A chunk of a batch entry: of a tensor with so many heads, and of the numbers of its queries.
  template <typename T>
  kernels::HeadsView<T> ChunkOf(T* tensor, size_t heads, size_t entry, size_t chunk) const;
  template <typename T>
  T* LseOf(T* lse, size_t entry, size_t chunk) const;

  // A buffer that travels in the ring, and one into which the next comes.
  struct RingBuffer {
    FloatBlock here, coming;
    Pending arrival;
  };
  // The buffers of a pass. With one rank nothing travels.
  struct Room {
    LayerMath& math;
    RingBuffer keys = {};       // K, then V
    RingBuffer gradients = {};  // of the keys and values, as far as they are added up
    FloatBlock shares = {};     // this rank's contribution to the gradients of one step
    // The results of one pair: out and lse, or dq, dk and dv.
    FloatBlock queries = {}, others = {}, values = {};
  };
  absl::StatusOr<Room> TakeForward(const LayerPlace& place) const;
  absl::StatusOr<Room> TakeBackward(const LayerPlace& place) const;
  absl::StatusOr<RingBuffer> TakeTravelling(Memory& memory, const char* what) const;

  // Keys and values, or their gradients.
  template <typename T>
  struct KeysAndValues {
    T* k;
    T* v;
  };
  template <typename T>
  KeysAndValues<T> In(std::span<T> both) const {
    return {both.data(), both.data() + key_elements()};
  }

  absl::Status RunForward(const LayerPlace& place, std::span<const float> q,
                          std::span<const float> k, std::span<const float> v, std::span<float> out,
                          std::span<float> lse);
  absl::Status RunBackward(const LayerPlace& place, const Saved& saved, std::span<const float> dout,
                           std::span<float> dq, std::span<float> dk, std::span<float> dv);
  // Calls `use` with the owner of each rank's keys and values, this rank's own first.
  absl::Status OverAllKeys(
      Room& room, KeysAndValues<const float> own,
      absl::FunctionRef<absl::Status(int owner, KeysAndValues<const float> keys)> use);
  absl::Status Attend(const Room& room, int owner, std::span<const float> q,
                      KeysAndValues<const float> keys, std::span<float> out, std::span<float> lse);
  // `to` gets this rank's contribution to the gradients of the owner's keys and values.
  absl::Status AttendBackward(const Room& room, int owner, const Saved& saved,
                              KeysAndValues<const float> keys, std::span<const float> dout,
                              std::span<float> dq, KeysAndValues<float> to);
  absl::Status AddOthersKeyGradients(Room& room, int owner, const Saved& saved,
                                     KeysAndValues<const float> keys, std::span<const float> dout,
                                     std::span<float> dq);
  // Copies keys, or their gradients, and values.
  absl::Status Put(LayerMath& math, KeysAndValues<const float> from, KeysAndValues<float> to) const;
  // Begins to send a buffer to the next rank and to receive the previous rank's.
  void Pass(RingBuffer& tensors);
  // Waits for the received buffer, which then becomes `here`.
  static absl::Status Arrive(RingBuffer& tensors);

  RingShape shape_;
  Zigzag zigzag_;
  RingRanks* ranks_;
  kernels::AttentionShape of_chunk_;  // of one batch entry, without a causal mask
};

// The bytes that each of `ranks` ranks takes while a pass runs on the host, without the alignment
// of blocks.
enum class RingPass : uint8_t { kForward, kBackward };
size_t RingAttentionBytes(const RingShape& shape, int ranks, RingPass turn, size_t threads);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_RING_ATTENTION_H_
