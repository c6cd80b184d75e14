#include "training/engines/sequence_ranks.h"

#include <utility>

#include "base/status_macros.h"

namespace geminid::trainer {

absl::StatusOr<SequenceRanks> SequenceRanks::Connect(
    std::unique_ptr<collectives::Communicator> ranks, const Parallel& parallel,
    kernels::ThreadPool* threads) {
  SequenceRanks made;
  if (parallel.rings()) {
    GEMINID_ASSIGN_OR_RETURN(made.ring_, SequenceRing::Create(std::move(ranks), threads));
    return made;
  }
  made.ranks_ = std::move(ranks);
  if (parallel.has_grid()) {
    made.heads_ = collectives::MakeHeadsOfPieces(*made.ranks_, threads);
  } else {
    made.swap_ = std::make_unique<collectives::HeadSwap>(made.ranks_.get());
  }
  return made;
}

}  // namespace geminid::trainer
