// How the survivors of a group in shared memory make a new one.
//
// Each rank says in its `survival` counter how far it is: the number of the attempt, and in it that
// it has come, that it has connected the new group, or that it could not. Who has died or left says
// nothing any more, and what it has said stays. So whoever waits until each rank has spoken or is
// gone sees the same as all others, whatever the order of deaths:
//   members   all that have come to the attempt
//   verdict   good if every one of them says that it has connected
// A bad verdict starts the next attempt, which has one member less.
#ifndef GEMINID_COLLECTIVES_SHM_SURVIVAL_H_
#define GEMINID_COLLECTIVES_SHM_SURVIVAL_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/shm/shm_communicator.h"
#include "collectives/shm/shm_group.h"
#include "geminid/communicator.h"

namespace geminid::collectives {

// See Communicator::Shrink. `name` is the group's, `attempt` this rank's last one.
absl::StatusOr<Survivors> ShrinkShm(const ShmGroup& group, const std::string& name,
                                    const ShmOptions& options, absl::Duration timeout,
                                    uint32_t* attempt);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_SHM_SURVIVAL_H_
