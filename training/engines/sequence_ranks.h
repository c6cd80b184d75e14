// The ranks that share sequences, as one of them sees it: the way on which its attention reaches
// the tokens that the others have.
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

  // As `parallel` says. Layers that ranks share as well have another way on the host than on a GPU.
  // `threads` may be null and outlives it.
  static absl::StatusOr<SequenceRanks> Connect(std::unique_ptr<collectives::Communicator> ranks,
                                               const Parallel& parallel, bool on_gpu,
                                               kernels::ThreadPool* threads);

  // Of whole layers, and of a GPU's shards of layers.
  SequenceCut Cut(collectives::Memory* memory) const {
    return {.swap = swap_.get(), .ring = ring_.get(), .memory = memory};
  }
  // Of the host's shards of layers; null: sequences are whole.
  collectives::PieceAttention* attention() const {
    return ring_ != nullptr ? &ring_->attention() : heads_.get();
  }

 private:
  std::unique_ptr<collectives::Communicator> ranks_;  // of the ways but the ring, which has its own
  // One of the three, if sequences are shared.
  std::unique_ptr<collectives::HeadSwap> swap_;
  std::unique_ptr<SequenceRing> ring_;
  std::unique_ptr<collectives::PieceAttention> heads_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_SEQUENCE_RANKS_H_
