#include "daemon/service/tenants/flood_guard.h"

#include "absl/strings/str_cat.h"
#include "daemon/os/unix_socket.h"

namespace geminid::service {

bool FloodGuard::Floods(const base::UniqueFd& connection, core::Time now) {
  const absl::StatusOr<os::Peer> peer = os::CredentialsOf(connection);
  if (!peer.ok()) return true;  // it has gone
  core::Rate rate = limits_->RateOf(config::kConnectionRate, config::kConnectionBurstSeconds);
  rate.per_second *= kTenantsPerProcess;
  rate.burst *= kTenantsPerProcess;
  processes_.SetRate(rate);
  // A process of another PID namespace has no number here: it counts with those like it.
  return !processes_.Take(absl::StrCat(peer->pid, " ", peer->uid, " ", peer->gid), now);
}

}  // namespace geminid::service
