// Where the survivors of a group meet. Its coordinator may be among the dead.
//
// Every rank listens from the beginning at a place that all others know (peer_listener.h). A dead
// rank does not listen, and a lost host does not answer. So each rank asks the ranks before it in
// the group, one after the other, and follows the first that answers; if none does, the rank leads.
// A leader waits until each rank behind it has come, has left the group, or is dead. Then it tells
// those that came who they are and where it will coordinate them. If a rank dies, connections to it
// end, and the next rank is asked.
#ifndef GEMINID_COLLECTIVES_TCP_SUCCESSION_H_
#define GEMINID_COLLECTIVES_TCP_SUCCESSION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"
#include "collectives/tcp/links.h"

namespace geminid::collectives {

struct SurvivorGroup {
  std::vector<int> ranks{};  // of the old group, ascending
  std::string host{};        // of the first of them
  uint16_t port = 0;
  base::UniqueFd listener{};  // listens there, if this rank is the first
};
// Blocks until all remaining ranks of the group have come. DEADLINE_EXCEEDED names living ranks
// that have not. Several groups may meet at the same time.
absl::StatusOr<SurvivorGroup> MeetSurvivors(const TcpLinks& group, absl::Duration timeout);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TCP_SUCCESSION_H_
