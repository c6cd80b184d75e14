#include "training/engines/sequence_ranks.h"

#include <utility>

#include "base/status_macros.h"
#include "training/engines/connect_gpus.h"

namespace geminid::trainer {

absl::StatusOr<SequenceRanks> SequenceRanks::Connect(
    std::unique_ptr<collectives::Communicator> ranks, const Parallel& parallel,
    const Place& place) {
  SequenceRanks made;
  if (parallel.rings() && place.queue == nullptr) {
    GEMINID_ASSIGN_OR_RETURN(made.ring_, SequenceRing::Create(std::move(ranks), place.threads));
    return made;
  }
  made.ranks_ = std::move(ranks);
  if (parallel.rings()) {
    GEMINID_ASSIGN_OR_RETURN(auto gpus,
                             ConnectGpus(place.device, *made.ranks_, &made.keys_travel_by_));
    made.ring_ = SequenceRing::OnGpu(*made.ranks_, std::move(gpus), *place.queue, place.memory);
  } else if (parallel.has_grid()) {
    made.heads_ = collectives::MakeUlyssesSequenceAttention(
        *made.ranks_, place.queue == nullptr ? nullptr : &place.memory);
  } else {
    made.swap_ = std::make_unique<collectives::UlyssesExchange>(made.ranks_.get());
  }
  return made;
}

}  // namespace geminid::trainer
