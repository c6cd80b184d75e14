// Clients' reports of the host memory that their GPUs' drivers page-lock.
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_REGISTRATIONS_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_REGISTRATIONS_H_

#include <optional>

#include "daemon/service/sessions/client_session.h"
#include "proto/shm/host_registration.h"

namespace geminid::service {

// Nullopt: no memory was given to be registered, or the client has gone and its report is outdated.
// To be called under the hub's mutex.
inline std::optional<shm::HostRegistration> RegistrationOf(const ClientSession& session) {
  if (session.ended()) return std::nullopt;
  const shm::HostRegistration registration =
      shm::LoadHostRegistration(session.segments().client()->counters);
  if (registration.bytes == 0) return std::nullopt;
  return registration;
}

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_REGISTRATIONS_H_
