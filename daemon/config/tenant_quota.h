// What a line of the configuration gives and allows one tenant.
#ifndef GEMINID_DAEMON_CONFIG_TENANT_QUOTA_H_
#define GEMINID_DAEMON_CONFIG_TENANT_QUOTA_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace geminid::config {

inline constexpr int32_t kMaxPriority = 100;

struct TenantQuota {
  std::string tenant;  // see CheckTenant; "*": everyone without a line of their own
  std::optional<uint64_t> host_bytes{};
  std::optional<uint64_t> device_bytes{};  // of each device that is not in the next line
  std::map<uint32_t, uint64_t> bytes_by_device{};
  uint64_t guaranteed_host_bytes = 0;
  uint64_t guaranteed_device_bytes = 0;  // likewise
  std::map<uint32_t, uint64_t> guaranteed_by_device{};
  uint32_t weight = 1;       // of the links
  int32_t max_priority = 0;  // of its jobs
};

}  // namespace geminid::config

#endif  // GEMINID_DAEMON_CONFIG_TENANT_QUOTA_H_
