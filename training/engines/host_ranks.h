// Connects the ranks of one host that have the same weights, which then gather weights from each
// other.
#ifndef GEMINID_TRAINING_ENGINES_HOST_RANKS_H_
#define GEMINID_TRAINING_ENGINES_HOST_RANKS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "geminid/communicator.h"

namespace geminid::trainer {

// A collective of all ranks of a run, `world`, of which `ranks` share this rank's weights: those of
// them on this rank's host, for zero::Options::host_ranks. Null where all of these are on one host.
// INVALID_ARGUMENT where all of the run are, or the hosts of some have different numbers of them;
// null if they `may_be_without`.
absl::StatusOr<std::unique_ptr<collectives::Communicator>> ConnectHostRanks(
    collectives::Communicator& world, collectives::Communicator& ranks, bool may_be_without);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_HOST_RANKS_H_
