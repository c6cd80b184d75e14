// One rank's view of the ranks that share sequences: how its attention reaches the tokens of the
// other ranks.
#ifndef GEMINID_TRAINING_ENGINES_SEQUENCE_RANKS_H_
#define GEMINID_TRAINING_ENGINES_SEQUENCE_RANKS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "geminid/communicator.h"
#include "kernels/runtime/parallel/thread_pool.h"
#include "training/nn/blocks.h"
#include "training/nn/parallel/sequence/head_swap.h"
#include "training/nn/parallel/sequence/piece_attention.h"
#include "training/nn/sequence_ring.h"
#include "training/settings/parallel.h"

namespace geminid::trainer {

class SequenceRanks {
 public:
  SequenceRanks() = default;  // sequences are whole

  // Connects as `parallel` says. `threads` may be null and outlives this object.
  static absl::StatusOr<SequenceRanks> Connect(std::unique_ptr<collectives::Communicator> ranks,
                                               const Parallel& parallel,
                                               kernels::ThreadPool* threads);

  // For whole layers, and for the shards of layers in 1D.
  SequenceCut Cut(collectives::Memory* memory) const {
    return {.swap = swap_.get(), .ring = ring_.get(), .memory = memory};
  }
  // For the layers of a grid; null: sequences are whole.
  collectives::PieceAttention* attention() const {
    return ring_ != nullptr ? &ring_->attention() : heads_.get();
  }

 private:
  std::unique_ptr<collectives::Communicator> ranks_;  // of all but the ring, which has its own
  // If sequences are shared, one of the three is set.
  std::unique_ptr<collectives::HeadSwap> swap_;
  std::unique_ptr<SequenceRing> ring_;
  std::unique_ptr<collectives::PieceAttention> heads_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_SEQUENCE_RANKS_H_
