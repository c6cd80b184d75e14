// Exchanges of heads (head_exchange.h) for tensors of any shape (DeepSpeed-Ulysses). Each rank has
// a slice of every sequence; for attention it gets whole sequences of its share of the heads.
#ifndef GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_ULYSSES_EXCHANGE_H_
#define GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_ULYSSES_EXCHANGE_H_

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "geminid/communicator.h"
#include "training/nn/parallel/memory.h"
#include "training/nn/parallel/sequence/head_exchange.h"

namespace geminid::collectives {

// Collectives of the ranks that share the sequences. All ranks make the same calls.
class UlyssesExchange {
 public:
  // `ranks` outlives this object. Rank r has slice r of each sequence.
  explicit UlyssesExchange(Communicator* ranks) : ranks_(ranks) {}

  size_t ranks() const { return static_cast<size_t>(ranks_->WorldSize()); }

  // Convert between pieces, [batch, sequence / ranks, heads, head_dim], and heads, [batch,
  // sequence, heads / ranks, head_dim]. `whole` is the shape of whole sequences with all heads. The
  // exchange's buffers come from `memory`.
  absl::Status ToHeads(const HeadsShape& whole, std::span<const float> pieces,
                       std::span<float> heads, Memory& memory = HeapMemory());
  absl::Status ToSlices(const HeadsShape& whole, std::span<const float> heads,
                        std::span<float> pieces, Memory& memory = HeapMemory());

  // Like Communicator::Abort.
  void Abort(const std::string& reason) { ranks_->Abort(reason); }

 private:
  Communicator* const ranks_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_ULYSSES_EXCHANGE_H_
