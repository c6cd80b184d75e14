// How the ranks of one host meet: over an abstract Unix socket, which has no file and ends with its
// process. Rank 0 sends the shared memory and a pidfd of every rank.
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

struct RendezvousResult {
  base::UniqueFd segment;                 // rank 0's memfd, as this rank's own descriptor
  std::vector<base::UniqueFd> processes;  // by rank: pidfds, including its own
};

// Blocks until all ranks have met under `name`. DEADLINE_EXCEEDED names the missing ranks. The name
// is private to the user and the network namespace; other users are refused both ways. Rank 0
// passes `segment_fd` (borrowed), others -1. If rank 0 passes an error, or a rank cannot have or
// send the descriptors, all ranks get that error when all have come. For descriptors that is
// RESOURCE_EXHAUSTED, naming the rank and the limit. A process with a wrong world size, or with a
// rank that is present already, is refused with INVALID_ARGUMENT, and the group continues to wait.
// `look` is called from time to time meanwhile; its error ends the wait.
absl::StatusOr<RendezvousResult> MeetOnHost(const std::string& name, int rank, int world_size,
                                            const absl::StatusOr<int>& segment_fd,
                                            absl::Duration timeout,
                                            const std::function<absl::Status()>& look = nullptr);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_SHM_RENDEZVOUS_H_
