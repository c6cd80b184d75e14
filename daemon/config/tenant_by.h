// How clients are grouped into tenants, and how the configuration names a tenant.
#ifndef GEMINID_DAEMON_CONFIG_TENANT_BY_H_
#define GEMINID_DAEMON_CONFIG_TENANT_BY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace geminid::config {

enum class TenantBy {
  kContainer,  // by cgroup, all clients of a container; otherwise all clients of a user
  kUid,
  kUidGid,
  kCgroup,
};

absl::StatusOr<TenantBy> ParseTenantBy(const std::string& text);
// Whether the tenant depends on the client's process, not only on its socket's credentials.
inline bool NeedsProcess(TenantBy by) {
  return by == TenantBy::kContainer || by == TenantBy::kCgroup;
}

// OK for "*", "uid:NUMBER", "uid:NUMBER,gid:NUMBER" and "cgroup:/PATH". "subuid:OWNER" and
// "subgid:OWNER" may stand in place of "uid:NUMBER" and "gid:NUMBER".
absl::Status CheckTenant(const std::string& text);

}  // namespace geminid::config

#endif  // GEMINID_DAEMON_CONFIG_TENANT_BY_H_
