// Who is charged for what a client does, and who may see what.
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
  // ranges in /etc/subuid, and "uid:1000,subgid:1000" likewise: who may be many users is one
  // tenant.
  std::string tenant;
  bool is_operator = false;  // root or the daemon's user: it may see what belongs to others
};

// From what the kernel says of the peer, never from what it says itself.
using Identify = std::function<Identity(const os::Peer&)>;

// Whose processes cannot be told apart because they had ended before they were looked at.
inline constexpr char kUnresolvedTenant[] = "unresolved";

// Whose the peer's ids are where they are subordinate ones; nothing: its own.
struct IdOwners {
  std::optional<std::string> of_user;
  std::optional<std::string> of_group;
};

// `place`: of the peer's process; nothing when it has ended. Only asked for where by != kUid and
// kUidGid. `self` is the user the daemon runs as.
Identity IdentityOf(const os::Peer& peer, config::TenantBy by,
                    const std::optional<os::ProcessPlace>& place, uid_t self,
                    const IdOwners& owners = {});

// Who is at the other end of a connection. Belongs to the event loop's thread.
struct Client {
  os::Peer peer;
  Identity identity;
};
class Clients {
 public:
  // `identify` empty: as `by` says.
  Clients(config::TenantBy by, Identify identify);

  // With the pidfd of its process, by which its end is seen.
  absl::StatusOr<Client> OfSession(const base::UniqueFd& connection) const;
  // Without it, unless it is needed to tell who it is.
  absl::StatusOr<Client> OfCall(const base::UniqueFd& connection) const;

 private:
  const bool needs_process_;
  const Identify identify_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_TENANTS_IDENTITY_H_
