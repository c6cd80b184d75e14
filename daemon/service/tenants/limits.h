// The control plane's limits per tenant that are in force, and counts of refusals by them.
#ifndef GEMINID_DAEMON_SERVICE_TENANTS_LIMITS_H_
#define GEMINID_DAEMON_SERVICE_TENANTS_LIMITS_H_

#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/config/tenant_shares.h"
#include "daemon/core/engine/refusals.h"
#include "daemon/core/transfers/token_bucket.h"

namespace geminid::service {

// The limit of open descriptors of the process; not a key of the configuration.
inline constexpr char kOpenFiles[] = "open_files";

// Thread-safe.
class Limits {
 public:
  explicit Limits(const config::TenantShares& shares) : shares_(shares) {}

  config::TenantShares Get() const;
  uint32_t Get(const config::ShareKey& key) const { return Get().*key.value; }
  core::Rate RateOf(const config::ShareKey& key, double burst_seconds) const;
  void Set(const config::TenantShares& shares);

  // Counts a refusal. RESOURCE_EXHAUSTED: "TENANT HAS; ADVICE, or raise KEY in the daemon's
  // configuration".
  absl::Status Refuse(const config::ShareKey& key, const std::string& tenant,
                      const std::string& has, const std::string& advice);
  void Count(const std::string& limit, const std::string& tenant);
  std::vector<core::Refusals::Row> Refused() const;

 private:
  mutable std::mutex mutex_;
  config::TenantShares shares_;  // guarded by mutex_
  core::Refusals refusals_;      // guarded by mutex_
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_TENANTS_LIMITS_H_
