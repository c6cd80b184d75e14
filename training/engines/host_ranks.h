// Connects the ranks of one host that have the same weights, which then gather weights from each
// other.
#ifndef GEMINID_TRAINING_ENGINES_HOST_RANKS_H_
#define GEMINID_TRAINING_ENGINES_HOST_RANKS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "geminid/communicator.h"

namespace geminid::trainer {

// Returns the communicator for zero::Options::host_ranks: those of `ranks`, which share this rank's
// weights, on this rank's host. Null if all of `ranks` are on one host. INVALID_ARGUMENT if the
// whole run is on one host or hosts have different numbers of `ranks`; null instead of that error
// with `may_be_without`. A collective of all ranks of the run, `world`.
absl::StatusOr<std::unique_ptr<collectives::Communicator>> ConnectHostRanks(
    collectives::Communicator& world, collectives::Communicator& ranks, bool may_be_without);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_HOST_RANKS_H_
