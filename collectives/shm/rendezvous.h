// How the ranks of one host find each other: an abstract Unix socket (nothing in a file system,
// gone with its process) over which rank 0 hands out the shared memory and a pidfd of every rank.
#ifndef GEMINID_COLLECTIVES_SHM_RENDEZVOUS_H_
#define GEMINID_COLLECTIVES_SHM_RENDEZVOUS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"

namespace geminid::collectives {

struct Meeting {
  base::UniqueFd segment;                 // the memfd of rank 0, as this rank's own descriptor
  std::vector<base::UniqueFd> processes;  // pidfd by rank; the own entry too
};

// Blocks until all ranks have met under `name`, or DEADLINE_EXCEEDED naming who is missing. The
// socket's name is private to the user and the network namespace; other users are refused both
// ways. Rank 0 gives `segment_fd` (borrowed), the others -1; an error in its place is, when all
// have come, the result on every rank. So is RESOURCE_EXHAUSTED of a rank that may not have, or not
// send, the descriptors: it names the rank and the limit. A stranger with a wrong world size or a
// rank already present is refused with INVALID_ARGUMENT and the group goes on waiting. `look` is
// called every now and then meanwhile; its error ends the wait.
absl::StatusOr<Meeting> MeetOnHost(const std::string& name, int rank, int world_size,
                                   const absl::StatusOr<int>& segment_fd, absl::Duration timeout,
                                   const std::function<absl::Status()>& look = nullptr);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_SHM_RENDEZVOUS_H_
