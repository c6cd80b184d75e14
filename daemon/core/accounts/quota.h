// Who may have how much: limits and guarantees per tenant, and the words of a refusal.
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
// The tenant whose limits hold for everyone without a line of their own.
inline constexpr char kEveryoneElse[] = "*";

// A line is for each tenant whose name it begins, up to a comma or a slash, if none is longer:
// "uid:1000" for "uid:1000,gid:100", "cgroup:/kubepods" for "cgroup:/kubepods/pod1", "cgroup:/" for
// every cgroup. Each has its limits for itself.
struct TenantLimits {
  std::string tenant;  // "uid:1000", "cgroup:/docker", or "*"
  uint64_t host_bytes = kUnlimited;
  uint64_t device_bytes = kUnlimited;  // of each device that is not in the next line
  std::map<DeviceIndex, uint64_t> bytes_by_device{};
  // Nobody else gets so much of it that the tenant could not have this. Not of "*".
  uint64_t guaranteed_host_bytes = 0;
  uint64_t guaranteed_device_bytes = 0;  // likewise
  std::map<DeviceIndex, uint64_t> guaranteed_by_device{};
  uint32_t weight = 1;       // of the links, beside other tenants
  int32_t max_priority = 0;  // of its jobs
};

// Whoever holds most of what is wanted; empty job: nobody holds any.
struct Holder {
  std::string job;
  int32_t rank = 0;
  uint64_t bytes = 0;
};

// What a refusal says. `free_bytes` is what the asker could have had.
struct Refusal {
  Account account;
  uint64_t asked_bytes = 0;
  uint64_t free_bytes = 0;
  uint64_t largest_hole_bytes = 0;
  uint64_t returning_bytes = 0;  // of what is not free: no session holds them any more
  std::string limit{};  // which limit binds: "tenant uid:1000 may have 4 GiB"
  Holder top_holder{};
  std::string advice{};  // what to do next, an imperative
};

// RESOURCE_EXHAUSTED, all of the above in one sentence each.
absl::Status ToStatus(const Refusal& refusal);

// Bytes charged per tenant and account. Not thread-safe. Cost: logarithmic in the number of
// tenants.
class Quota {
 public:
  explicit Quota(const std::vector<TenantLimits>& limits);

  // What is charged already stays, even above a new limit.
  void SetLimits(const std::vector<TenantLimits>& limits);
  uint64_t LimitBytes(const std::string& tenant, Account account) const;
  uint64_t GuaranteedBytes(const std::string& tenant, Account account) const;
  // Those with a guarantee on anything.
  const std::set<std::string>& GuaranteedTenants() const { return guaranteed_; }
  uint32_t Weight(const std::string& tenant) const { return Of(tenant).weight; }
  int32_t MaxPriority(const std::string& tenant) const { return Of(tenant).max_priority; }
  uint64_t ChargedBytes(const std::string& tenant, Account account) const;
  // Those with anything charged.
  std::set<std::string> ChargedTenants() const;
  // What the tenant may still ask for; kUnlimited without a limit.
  uint64_t FreeBytes(const std::string& tenant, Account account) const;

  // False, and nothing charged, when that would exceed the limit.
  bool TryCharge(const std::string& tenant, Account account, uint64_t bytes);
  // Charges what the tenant was given while an earlier daemon ran, whatever the limit is now.
  void ChargeAgain(const std::string& tenant, Account account, uint64_t bytes);
  // Returns bytes charged before. An error, and nothing changed, when fewer were charged.
  absl::Status Return(const std::string& tenant, Account account, uint64_t bytes);

 private:
  // Null: the tenant has no limits.
  const TenantLimits* LineOf(const std::string& tenant) const;
  const TenantLimits& Of(const std::string& tenant) const;

  std::map<std::string, TenantLimits> limits_;
  std::set<std::string> guaranteed_;
  std::map<std::pair<std::string, Account>, uint64_t> charges_;  // no zeros
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_ACCOUNTS_QUOTA_H_
