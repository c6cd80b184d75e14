// Exchanges of heads (head_exchange.h) of whatever shapes come: each rank has a piece of every
// sequence and, while it attends, whole sequences of its share of the heads (DeepSpeed-Ulysses).
#ifndef GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_HEAD_SWAP_H_
#define GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_HEAD_SWAP_H_

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "geminid/communicator.h"
#include "training/nn/parallel/memory.h"
#include "training/nn/parallel/sequence/head_exchange.h"

namespace geminid::collectives {

// Collectives of the ranks that share the sequences, which make the same calls.
class HeadSwap {
 public:
  // `ranks` outlives it; this rank's piece of each sequence is the one of its number.
  explicit HeadSwap(Communicator* ranks) : ranks_(ranks) {}

  size_t ranks() const { return static_cast<size_t>(ranks_->WorldSize()); }

  // `whole` is of whole sequences and all these heads. Pieces are [batch, sequence / ranks, heads,
  // head_dim], heads are [batch, sequence, heads / ranks, head_dim]; the one becomes the other.
  // `memory` is for what an exchange takes.
  absl::Status ToHeads(const HeadsShape& whole, std::span<const float> pieces,
                       std::span<float> heads, Memory& memory = HeapMemory());
  absl::Status ToPieces(const HeadsShape& whole, std::span<const float> heads,
                        std::span<float> pieces, Memory& memory = HeapMemory());

  // As Communicator's.
  void Abort(const std::string& reason) { ranks_->Abort(reason); }

 private:
  Communicator* const ranks_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_HEAD_SWAP_H_
