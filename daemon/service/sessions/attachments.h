// Opens sessions for clients that attach, and finds the session of a caller by its token.
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_ATTACHMENTS_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_ATTACHMENTS_H_

#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "daemon/gpus/gpus.h"
#include "daemon/os/unix_socket.h"
#include "daemon/service/sessions/reclaimer.h"
#include "daemon/service/sessions/replacements.h"
#include "daemon/service/sessions/session_store.h"
#include "daemon/service/sessions/session_table.h"
#include "daemon/service/tenants/descriptors_in_flight.h"

namespace geminid::service {

// Thread-safe.
class Attachments {
 public:
  // All arguments must outlive it. `gpus` may be null: then no device is a GPU.
  Attachments(gpus::Gpus* gpus, DescriptorsInFlight* in_flight, SessionTable* table,
              SessionStore* store, SessionPlans* plans, SessionEnds* ends, Reclaimer* reclaimer)
      : gpus_(gpus),
        in_flight_(in_flight),
        table_(table),
        store_(store),
        reclaimer_(reclaimer),
        replacements_(in_flight, plans, ends) {}

  // See SessionHub for each.
  absl::StatusOr<SessionPtr> Open(const core::SessionSpec& spec, os::Peer peer,
                                  base::UniqueFd socket);
  void SetWelcomed(const SessionPtr& session);
  absl::StatusOr<SessionPtr> Authenticate(const std::string& token_hex);

 private:
  using Locked = SessionTable::Locked;

  absl::StatusOr<SessionPtr> OpenNew(const Locked& locked, const core::SessionSpec& spec,
                                     os::Peer peer, base::UniqueFd socket);
  absl::StatusOr<SessionPtr> MakeSession(const Locked& locked, shm::SessionId id,
                                         const core::SessionSpec& spec, os::Peer peer,
                                         base::UniqueFd socket);
  // Puts the session into the store; to be called without the mutex.
  absl::StatusOr<SessionPtr> Store(SessionPtr session);

  gpus::Gpus* const gpus_;
  DescriptorsInFlight* const in_flight_;
  SessionTable* const table_;
  SessionStore* const store_;
  Reclaimer* const reclaimer_;
  Replacements replacements_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_ATTACHMENTS_H_
