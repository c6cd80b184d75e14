// Gives the retained session of a dead client to its replacement: the process that the launcher
// starts for the same rank of the same run.
//
// The replacement gets a new token, new books and new segments, except the commit segment. They
// enter the descriptor store under their own names, the books last; then the old ones are removed.
// Until the replacement has its Welcome, the new books show a retained session. So wherever the
// daemon dies, the next one finds a retained session, or the replacement's.
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_REPLACEMENTS_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_REPLACEMENTS_H_

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "daemon/os/unix_socket.h"
#include "daemon/service/sessions/session_ends.h"
#include "daemon/service/sessions/session_plans.h"
#include "daemon/service/sessions/session_table.h"
#include "daemon/service/tenants/descriptors_in_flight.h"

namespace geminid::service {

class Replacements {
 public:
  using Locked = SessionTable::Locked;

  // All arguments must outlive it.
  Replacements(DescriptorsInFlight* in_flight, SessionPlans* plans, SessionEnds* ends)
      : in_flight_(in_flight), plans_(plans), ends_(ends) {}

  // Closes the session of an earlier client of this rank and run, whose end nobody has noticed yet.
  // UNAVAILABLE while that client lives.
  absl::Status CloseDead(const Locked& locked, const core::SessionSpec& spec, Garbage* garbage);
  // Opens the retained session `id` for the replacement at the other end of `socket`.
  absl::StatusOr<SessionPtr> Reopen(const Locked& locked, shm::SessionId id,
                                    const core::SessionSpec& spec, os::Peer peer,
                                    base::UniqueFd socket, Garbage* garbage);

 private:
  DescriptorsInFlight* const in_flight_;
  SessionPlans* const plans_;
  SessionEnds* const ends_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_REPLACEMENTS_H_
