// Limits and guarantees of memory per tenant, and the text of a refusal.
#ifndef GEMINID_DAEMON_CORE_ACCOUNTS_QUOTA_H_
#define GEMINID_DAEMON_CORE_ACCOUNTS_QUOTA_H_

#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "daemon/core/accounts/account.h"

namespace geminid::core {

inline constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
// The name of the line that applies to every tenant without a line of its own.
inline constexpr char kEveryoneElse[] = "*";

// One line applies to each tenant whose name starts with `tenant`, up to a comma or a slash; the
// longest such line wins. "uid:1000" covers "uid:1000,gid:100"; "cgroup:/kubepods" covers
// "cgroup:/kubepods/pod1"; "cgroup:/" covers every cgroup. Each tenant has the limits for itself.
struct TenantLimits {
  std::string tenant;  // "uid:1000", "cgroup:/docker", or "*"
  uint64_t host_bytes = kUnlimited;
  uint64_t device_bytes = kUnlimited;  // of each device that bytes_by_device does not name
  std::map<DeviceIndex, uint64_t> bytes_by_device{};
  // Other tenants never get so much that this one could not have these bytes. Ignored for "*".
  uint64_t guaranteed_host_bytes = 0;
  uint64_t guaranteed_device_bytes = 0;  // of each device that guaranteed_by_device does not name
  std::map<DeviceIndex, uint64_t> guaranteed_by_device{};
  uint32_t weight = 1;       // its share of the links, relative to other tenants
  int32_t max_priority = 0;  // the highest that its jobs may ask for
  uint64_t disk_bytes = kUnlimited;
};

// The session that holds the most memory of an account. An empty job: no session holds any.
struct Holder {
  std::string job;
  int32_t rank = 0;
  uint64_t bytes = 0;
};

// The facts of a refusal. `free_bytes` is the most that the refused session could have had.
struct Refusal {
  Account account;
  uint64_t asked_bytes = 0;
  uint64_t free_bytes = 0;
  uint64_t largest_hole_bytes = 0;
  uint64_t returning_bytes = 0;  // not free yet, although no session holds them any more
  std::string limit{};  // which limit binds: "tenant uid:1000 may have 4 GiB"
  Holder top_holder{};
  std::string advice{};  // what to do next, an imperative
};

// RESOURCE_EXHAUSTED, with all of the facts above in the message.
absl::Status ToStatus(const Refusal& refusal);

// Bytes charged per tenant and account. Not thread-safe. Cost: logarithmic in the number of
// tenants.
class Quota {
 public:
  explicit Quota(const std::vector<TenantLimits>& limits);

  // Existing charges stay, even if they exceed a new limit.
  void SetLimits(const std::vector<TenantLimits>& limits);
  uint64_t LimitBytes(const std::string& tenant, Account account) const;
  uint64_t GuaranteedBytes(const std::string& tenant, Account account) const;
  // The tenants with a guarantee on any account.
  const std::set<std::string>& GuaranteedTenants() const { return guaranteed_; }
  uint32_t Weight(const std::string& tenant) const { return Of(tenant).weight; }
  int32_t MaxPriority(const std::string& tenant) const { return Of(tenant).max_priority; }
  uint64_t ChargedBytes(const std::string& tenant, Account account) const;
  // The tenants that are charged for anything.
  std::set<std::string> ChargedTenants() const;
  // How much more the tenant's limit lets it have; kUnlimited without a limit.
  uint64_t FreeBytes(const std::string& tenant, Account account) const;

  // False, and nothing is charged, if the charge would exceed the limit.
  bool TryCharge(const std::string& tenant, Account account, uint64_t bytes);
  // Charges bytes that an earlier daemon gave the tenant, whatever the limit is now.
  void ChargeAgain(const std::string& tenant, Account account, uint64_t bytes);
  // Returns bytes charged before. An error, and nothing changed, when fewer were charged.
  absl::Status Return(const std::string& tenant, Account account, uint64_t bytes);

 private:
  // The line that applies to the tenant; null: none does.
  const TenantLimits* LineOf(const std::string& tenant) const;
  const TenantLimits& Of(const std::string& tenant) const;

  std::map<std::string, TenantLimits> limits_;
  std::set<std::string> guaranteed_;
  std::map<std::pair<std::string, Account>, uint64_t> charges_;  // no zeros
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_ACCOUNTS_QUOTA_H_
