#include "daemon/config/guarantees.h"

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "daemon/config/size.h"

namespace geminid::config {
namespace {

constexpr uint32_t kMaxWeight = 1000;

using Problems = std::vector<std::pair<std::string, std::string>>;

// Returns 0 if `text` is empty or no size.
uint64_t Guaranteed(const std::string& key, const std::string& text,
                    const std::optional<uint64_t>& limit, Problems* problems) {
  if (text.empty()) return 0;
  const absl::StatusOr<uint64_t> bytes = ParseSize(text);
  if (!bytes.ok()) {
    problems->emplace_back(key, std::string(bytes.status().message()));
    return 0;
  }
  if (limit.has_value() && *bytes > *limit) {
    problems->emplace_back(
        key, absl::StrCat("guarantees ", base::FormatBytes(*bytes),
                          ", more than the tenant's limit of ", base::FormatBytes(*limit)));
  }
  return *bytes;
}

uint64_t OfDevice(const TenantQuota& quota, uint32_t device) {
  const auto found = quota.guaranteed_by_device.find(device);
  return found == quota.guaranteed_by_device.end() ? quota.guaranteed_device_bytes : found->second;
}

absl::Status CheckSum(const std::string& what, uint64_t guaranteed, uint64_t capacity) {
  if (guaranteed <= capacity) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("quotas guarantee tenants ", base::FormatBytes(guaranteed), " of ", what,
                   ", but there are only ", base::FormatBytes(capacity), "; guarantee less"));
}

}  // namespace

Problems ReadGuarantees(const v1::TenantQuota& line, TenantQuota* quota) {
  Problems problems;
  quota->guaranteed_host_bytes = Guaranteed("guaranteed_host_memory", line.guaranteed_host_memory(),
                                            quota->host_bytes, &problems);
  quota->guaranteed_device_bytes = Guaranteed(
      "guaranteed_device_memory", line.guaranteed_device_memory(), quota->device_bytes, &problems);
  for (int i = 0; i < line.device_size(); ++i) {
    const v1::DeviceQuota& device = line.device(i);
    if (device.guaranteed().empty()) continue;
    const auto limit = quota->bytes_by_device.find(device.index());
    quota->guaranteed_by_device[device.index()] = Guaranteed(
        absl::StrCat("device[", i, "].guaranteed"), device.guaranteed(),
        limit == quota->bytes_by_device.end() ? quota->device_bytes : limit->second, &problems);
  }
  const bool guarantees = quota->guaranteed_host_bytes > 0 || quota->guaranteed_device_bytes > 0 ||
                          !quota->guaranteed_by_device.empty();
  if (guarantees && quota->tenant == "*") {
    problems.emplace_back("tenant",
                          "'*' stands for many tenants and cannot guarantee memory to each; give a "
                          "tenant that needs a guarantee its own line");
  }
  if (line.has_weight()) {
    if (line.weight() < 1 || line.weight() > kMaxWeight) {
      problems.emplace_back("weight",
                            absl::StrCat(line.weight(), " is not from 1 to ", kMaxWeight));
    }
    quota->weight = line.weight();
  }
  if (line.max_priority() < -kMaxPriority || line.max_priority() > kMaxPriority) {
    problems.emplace_back("max_priority", absl::StrCat(line.max_priority(), " is not from ",
                                                       -kMaxPriority, " to ", kMaxPriority));
  }
  quota->max_priority = line.max_priority();
  return problems;
}

absl::Status CheckGuarantees(const Settings& settings) {
  uint64_t host = 0;
  for (const TenantQuota& quota : settings.quotas) host += quota.guaranteed_host_bytes;
  absl::Status status = CheckSum("host memory", host, *settings.host_bytes);
  for (uint32_t i = 0; i < settings.devices.size() && status.ok(); ++i) {
    if (settings.devices[i].bytes == 0) continue;  // GPU not probed or absent
    uint64_t device = 0;
    for (const TenantQuota& quota : settings.quotas) device += OfDevice(quota, i);
    status = CheckSum(absl::StrCat("device ", i), device, settings.devices[i].bytes);
  }
  return status;
}

}  // namespace geminid::config
