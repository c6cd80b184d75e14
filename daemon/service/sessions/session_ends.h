// Ends sessions whose clients have gone, and those that an operator or their tenant ends.
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_ENDS_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_ENDS_H_

#include "absl/status/status.h"
#include "daemon/service/sessions/reclaimer.h"
#include "daemon/service/sessions/session_statistics.h"
#include "daemon/service/sessions/session_table.h"
#include "daemon/service/sessions/waker.h"

namespace geminid::service {

struct Closed {
  bool now = false;  // false: it had ended before
  Garbage garbage;   // for the caller to Destroy, now or later
};

// Thread-safe.
class SessionEnds {
 public:
  using Locked = SessionTable::Locked;

  // All arguments must outlive it.
  SessionEnds(SessionTable* table, Waker* waker, SessionStatistics* statistics,
              Reclaimer* reclaimer)
      : table_(table), waker_(waker), statistics_(statistics), reclaimer_(reclaimer) {}

  // Ends the client's part of the session. Its memory ends with the garbage, or is retained for a
  // replacement of the client, as the session's death policy says.
  [[nodiscard]] Closed Close(const SessionPtr& session, core::CloseReason reason);
  // The same under the mutex, of a session that has not ended; adds to *garbage.
  void Close(const Locked& locked, const SessionPtr& session, core::CloseReason reason,
             Garbage* garbage);
  // Ends the session for good, whether its client has gone before or not. False: the engine has no
  // such session.
  bool EndForGood(const Locked& locked, const SessionPtr& session, Garbage* garbage);

 private:
  // Ends the session here and in the engine at once. `died`: see Reclaimer::Collect.
  absl::Status End(const Locked& locked, const SessionPtr& session, core::CloseReason reason,
                   bool died, Garbage* garbage);

  SessionTable* const table_;
  Waker* const waker_;
  SessionStatistics* const statistics_;
  Reclaimer* const reclaimer_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_ENDS_H_
