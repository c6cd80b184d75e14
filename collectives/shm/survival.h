// How the survivors of a group in shared memory form a new one.
//
// Each rank writes its progress to its `survival` counter: the number of the attempt, and within it
// that it has come, has connected the new group, or could not. A rank that has died or left writes
// nothing more, and its last word stays. So each rank that waits until every other one has written
// or is gone sees the same, in whatever order ranks die:
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

// See Communicator::Shrink. `name`: of the group; `attempt`: this rank's last one.
absl::StatusOr<Survivors> ShrinkShm(const ShmGroup& group, const std::string& name,
                                    const ShmOptions& options, absl::Duration timeout,
                                    uint32_t* attempt);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_SHM_SURVIVAL_H_
