// Identifies who is charged for a client, and what it may see.
#ifndef GEMINID_DAEMON_SERVICE_TENANTS_IDENTITY_H_
#define GEMINID_DAEMON_SERVICE_TENANTS_IDENTITY_H_

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "daemon/config/tenant_by.h"
#include "daemon/os/process_place.h"
#include "daemon/os/unix_socket.h"

namespace geminid::service {

struct Identity {
  // "uid:1000", "uid:1000,gid:100", "cgroup:/docker/0123"; "subuid:1000" for all ids of that user's
  // ranges in /etc/subuid, and "uid:1000,subgid:1000" likewise. So a user with many ids is one
  // tenant.
  std::string tenant;
  bool is_operator = false;  // root or the daemon's user: it may see what belongs to others
};

// Computed from what the kernel says of the peer, never from what the peer says.
using IdentifyPeer = std::function<Identity(const os::Peer&)>;

// The tenant of all processes that had ended before they could be identified.
inline constexpr char kUnresolvedTenant[] = "unresolved";

// The owners of a peer's ids that are subordinate ones; nullopt: the id is the peer's own.
struct IdOwners {
  std::optional<std::string> of_user;
  std::optional<std::string> of_group;
};

// `place`: of the peer's process; nullopt: it has ended. Only used if `by` is neither kUid nor
// kUidGid. `self` is the user that the daemon runs as.
Identity IdentityOf(const os::Peer& peer, config::TenantBy by,
                    const std::optional<os::ProcessPlace>& place, uid_t self,
                    const IdOwners& owners = {});

// The client at the other end of a connection. Belongs to the event loop's thread.
struct Client {
  os::Peer peer;
  Identity identity;
};
class Clients {
 public:
  // `identify` empty: as `by` says.
  Clients(config::TenantBy by, IdentifyPeer identify);

  // With the pidfd of its process, which shows when the process ends.
  absl::StatusOr<Client> OfSession(const base::UniqueFd& connection) const;
  // Without the pidfd, unless identifying the client needs it.
  absl::StatusOr<Client> OfCall(const base::UniqueFd& connection) const;

 private:
  const bool needs_process_;
  const IdentifyPeer identify_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_TENANTS_IDENTITY_H_
