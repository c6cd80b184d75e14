// Where the survivors of a group meet: whoever was its coordinator may be among the dead.
//
// Every rank listens, from the beginning, at a place that all others know (arrivals.h). Nobody
// listens there once it is dead, and a host that is gone does not answer. So each rank asks those
// before it in the group, one after the other, and follows the first that is there; if there is
// none it leads. A leader waits until each rank behind it has come, has left the group, or is dead,
// and then tells those that have come who they are and where it will coordinate them. Connections
// end with whoever dies, and the next rank is asked.
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

struct NewGroup {
  std::vector<int> ranks{};  // of the group, ascending
  std::string host{};        // of the first of them
  uint16_t port = 0;
  base::UniqueFd listener{};  // there, if this rank is the first
};
// Blocks until all that are left of the group have come. DEADLINE_EXCEEDED names who has not, and
// lives. Groups may meet at the same time.
absl::StatusOr<NewGroup> MeetSurvivors(const TcpLinks& group, absl::Duration timeout);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TCP_SUCCESSION_H_
