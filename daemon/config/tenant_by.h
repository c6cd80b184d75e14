// Which clients are one tenant, and what the configuration calls a tenant.
#ifndef GEMINID_DAEMON_CONFIG_TENANT_BY_H_
#define GEMINID_DAEMON_CONFIG_TENANT_BY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace geminid::config {

enum class TenantBy {
  kContainer,  // all of a container, by its cgroup; outside of containers all of a user
  kUid,
  kUidGid,
  kCgroup,
};

absl::StatusOr<TenantBy> ParseTenantBy(const std::string& text);
// Whether a client's process must be looked at, and not only what its socket says.
inline bool NeedsProcess(TenantBy by) {
  return by == TenantBy::kContainer || by == TenantBy::kCgroup;
}

// OK for "*", "uid:NUMBER", "uid:NUMBER,gid:NUMBER", "cgroup:/PATH", and
// "subuid:OWNER" and "subgid:OWNER" in place of numbers.
absl::Status CheckTenant(const std::string& text);

}  // namespace geminid::config

#endif  // GEMINID_DAEMON_CONFIG_TENANT_BY_H_
