// Causal attention over sequences that are cut over ranks, for a layer that need not know how: with
// keys and values going round (ring_attention.h), or by exchanges of heads (head_exchange.h).
#ifndef GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_PIECE_ATTENTION_H_
#define GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_PIECE_ATTENTION_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "geminid/async_communicator.h"
#include "geminid/communicator.h"
#include "kernels/model/attention/attention.h"
#include "kernels/runtime/parallel/thread_pool.h"
#include "training/nn/parallel/memory.h"
#include "training/nn/parallel/sequence/ring_attention.h"

namespace geminid::collectives {

// The ranks that share the sequences make the same calls. In fp32. Takes what its kind says of the
// memory that a call is given, for the time of the call: RESOURCE_EXHAUSTED where that is refused,
// which the other ranks are told. One thread at a time.
class PieceAttention {
 public:
  virtual ~PieceAttention() = default;

  // `mine` has this rank's tokens of each sequence, all of them queries. q, out [batch, tokens,
  // heads, head_dim]; k, v [batch, tokens, kv_heads, head_dim]. lse, of batch * tokens * heads
  // numbers, is for Backward. INVALID_ARGUMENT for a shape that cannot be cut so.
  virtual absl::Status Forward(Memory& memory, const kernels::AttentionShape& mine,
                               std::span<const float> q, std::span<const float> k,
                               std::span<const float> v, std::span<float> out,
                               std::span<float> lse) = 0;

  // The inputs of the forward pass and its results.
  using Saved = RingAttention::Saved;
  // Overwrites dq, dk, dv.
  virtual absl::Status Backward(Memory& memory, const kernels::AttentionShape& mine,
                                const Saved& saved, std::span<const float> dout,
                                std::span<float> dq, std::span<float> dk, std::span<float> dv) = 0;

  // As Communicator's.
  virtual void Abort(const std::string& reason) = 0;
};

// Of tokens cut as Zigzag says. `ranks` and `pool`, which may be null, outlive it.
std::unique_ptr<PieceAttention> MakeRingOfPieces(AsyncCommunicator& ranks,
                                                 kernels::ThreadPool* pool);

// Of consecutive tokens; the number of ranks divides heads and kv_heads. Results have the bits of
// attention in one place. With n = batch * tokens * head_dim and P ranks, each rank receives
//   forward   (P-1)/P n (2 heads + 2 kv_heads) elements: queries, keys and values, and results
//   backward  (P-1)/P n (4 heads + 4 kv_heads): queries, keys, values, results and their gradient,
//             and the gradients of the first three
// and takes what HeadsOfPiecesBytes says.
std::unique_ptr<PieceAttention> MakeHeadsOfPieces(Communicator& ranks, kernels::ThreadPool* pool);

// Of a rank of so many: as many elements as it has of all that is exchanged, and beside them the
// larger of an exchange's buffers, twice the queries, and what the kernel needs. Exact but for the
// alignment of blocks.
size_t HeadsOfPiecesBytes(const kernels::AttentionShape& mine, int ranks, RingTurn turn,
                          size_t threads);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_PIECE_ATTENTION_H_
