// One entry of `quotas`: the limits and guarantees of one tenant.
#ifndef GEMINID_DAEMON_CONFIG_TENANT_QUOTA_H_
#define GEMINID_DAEMON_CONFIG_TENANT_QUOTA_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace geminid::config {

inline constexpr int32_t kMaxPriority = 100;

struct TenantQuota {
  std::string tenant;  // see CheckTenant; "*": every tenant without an entry of its own
  std::optional<uint64_t> host_bytes{};
  std::optional<uint64_t> device_bytes{};  // for each device not in bytes_by_device
  std::map<uint32_t, uint64_t> bytes_by_device{};
  std::optional<uint64_t> disk_bytes{};
  uint64_t guaranteed_host_bytes = 0;
  uint64_t guaranteed_device_bytes = 0;  // for each device not in the next map
  std::map<uint32_t, uint64_t> guaranteed_by_device{};
  uint32_t weight = 1;       // its share of the links, beside other tenants
  int32_t max_priority = 0;  // highest priority of its jobs
};

}  // namespace geminid::config

#endif  // GEMINID_DAEMON_CONFIG_TENANT_QUOTA_H_
