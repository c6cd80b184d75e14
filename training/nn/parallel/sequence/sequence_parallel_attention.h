// Causal attention over sequences that are partitioned over ranks. The layer need not know the
// method: keys and values in a ring (ring_attention.h), or exchanges of heads (head_exchange.h).
#ifndef GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_SEQUENCE_PARALLEL_ATTENTION_H_
#define GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_SEQUENCE_PARALLEL_ATTENTION_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "geminid/communicator.h"
#include "kernels/model/attention/attention.h"
#include "training/nn/parallel/layer_math.h"
#include "training/nn/parallel/memory.h"
#include "training/nn/parallel/sequence/ring_attention.h"

namespace geminid::collectives {

// The ranks that share the sequences make the same calls. In fp32. On the host a call takes the
// bytes that its kind documents from its place's memory, and frees them at the end. If that is
// refused, it returns RESOURCE_EXHAUSTED and tells the other ranks, of which some may have
// completed the call. One thread at a time.
class SequenceParallelAttention {
 public:
  virtual ~SequenceParallelAttention() = default;

  // `mine` has this rank's tokens of each sequence; all of them are queries. q, out [batch, tokens,
  // heads, head_dim]; k, v [batch, tokens, kv_heads, head_dim]. Backward needs lse, of batch *
  // tokens * heads elements, in the order of its kind. INVALID_ARGUMENT for a shape that cannot be
  // partitioned.
  virtual absl::Status Forward(const LayerPlace& place, const kernels::AttentionShape& mine,
                               std::span<const float> q, std::span<const float> k,
                               std::span<const float> v, std::span<float> out,
                               std::span<float> lse) = 0;

  // The inputs and results of the forward pass.
  using Saved = RingAttention::Saved;
  // Overwrites dq, dk, dv.
  virtual absl::Status Backward(const LayerPlace& place, const kernels::AttentionShape& mine,
                                const Saved& saved, std::span<const float> dout,
                                std::span<float> dq, std::span<float> dk, std::span<float> dv) = 0;

  // Like Communicator::Abort.
  virtual void Abort(const std::string& reason) = 0;
};

// Attention in a ring, over tokens that Zigzag partitions. `ranks` outlive it.
std::unique_ptr<SequenceParallelAttention> MakeRingSequenceAttention(RingRanks& ranks);

// Attention by exchanges of heads, over consecutive tokens. The number of ranks divides heads and
// kv_heads. Results have the bits of attention on one rank. With n = batch * tokens * head_dim and
// P ranks, each rank receives
//   forward   (P-1)/P n (2 heads + 2 kv_heads) elements: queries, keys and values, and results
//   backward  (P-1)/P n (4 heads + 4 kv_heads): queries, keys, values, results and their gradient,
//             and the gradients of the first three
// and takes UlyssesSequenceAttentionBytes of memory. What GPUs exchange passes through `host`,
// memory of the host; it is null if the host computes. `ranks` and `host` outlive it.
std::unique_ptr<SequenceParallelAttention> MakeUlyssesSequenceAttention(Communicator& ranks,
                                                                        Memory* host = nullptr);

// The bytes of one rank: as many elements as it has of all exchanged tensors, plus the larger of an
// exchange's buffers (twice the queries) and the kernel's workspace. Exact except for the alignment
// of blocks.
size_t UlyssesSequenceAttentionBytes(const kernels::AttentionShape& mine, int ranks, RingPass turn,
                                     size_t threads);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_SEQUENCE_PARALLEL_ATTENTION_H_
