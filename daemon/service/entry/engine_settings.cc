#include "daemon/service/entry/engine_settings.h"

#include <algorithm>

#include "absl/time/time.h"
#include "base/status_macros.h"
#include "daemon/os/machine.h"
#include "daemon/service/entry/devices.h"

namespace geminid::service {
namespace {

core::TenantLimits LimitsOf(const config::TenantQuota& quota) {
  core::TenantLimits limits = {.tenant = quota.tenant,
                               .host_bytes = quota.host_bytes.value_or(core::kUnlimited),
                               .device_bytes = quota.device_bytes.value_or(core::kUnlimited),
                               .disk_bytes = quota.disk_bytes.value_or(core::kUnlimited)};
  for (const auto& [index, bytes] : quota.bytes_by_device) {
    limits.bytes_by_device[shm::DeviceIndex{index}] = bytes;
  }
  limits.guaranteed_host_bytes = quota.guaranteed_host_bytes;
  limits.guaranteed_device_bytes = quota.guaranteed_device_bytes;
  for (const auto& [index, bytes] : quota.guaranteed_by_device) {
    limits.guaranteed_by_device[shm::DeviceIndex{index}] = bytes;
  }
  limits.weight = quota.weight;
  limits.max_priority = quota.max_priority;
  return limits;
}

std::vector<core::TenantLimits> TenantsOf(const config::Settings& settings) {
  std::vector<core::TenantLimits> tenants;
  for (const config::TenantQuota& quota : settings.quotas) tenants.push_back(LimitsOf(quota));
  return tenants;
}

core::Duration KeepTimeOf(const config::Settings& settings) {
  return core::Duration::Nanoseconds(absl::ToInt64Nanoseconds(settings.keep_time));
}

core::JobQueueOptions JobsOf(const config::Settings& settings) {
  return {
      .gather_time = core::Duration::Nanoseconds(absl::ToInt64Nanoseconds(settings.gather_time)),
      .ageing = core::Duration::Nanoseconds(absl::ToInt64Nanoseconds(settings.queue_ageing)),
      .yield_time = core::Duration::Nanoseconds(absl::ToInt64Nanoseconds(settings.yield_time)),
      .waiting_per_tenant = settings.shares.waiting_jobs};
}

bool IsFromMachine(const config::Settings& settings, const char* key) {
  return std::ranges::any_of(settings.origins, [key](const config::Origin& origin) {
    return origin.key == key && origin.origin == config::kFromMachine;
  });
}

}  // namespace

absl::StatusOr<SessionHubOptions> HubOptionsOf(const config::Settings& settings,
                                               const std::vector<gpus::NodeDevice>& devices,
                                               const os::Numa& numa, uint64_t daemon_epoch) {
  SessionHubOptions options;
  options.machine = os::ReadMachine(numa);
  options.numa = &numa;
  options.huge_pages = settings.huge_pages;
  options.daemon_epoch = daemon_epoch;
  core::EngineOptions& engine = options.engine;
  const os::HugePages& reserved = options.machine.huge_pages;
  if (settings.huge_pages && reserved.free_pages > 0) engine.huge_page_bytes = reserved.page_bytes;
  engine.host_capacity_bytes = *settings.host_bytes;
  options.host_capacity_is_default = IsFromMachine(settings, "host_memory");
  options.device_capacities_are_default = IsFromMachine(settings, "device_memory");
  GEMINID_ASSIGN_OR_RETURN(engine.devices,
                           DescribeDevices(devices, settings.socket, options.machine));
  engine.tenants = TenantsOf(settings);
  engine.transfers.tickets_in_flight = settings.tickets_in_flight;
  engine.transfers.bytes_in_flight = settings.bytes_in_flight;
  engine.max_sessions = settings.sessions;
  options.chunk_records = settings.chunks;
  engine.transfers.link_bytes_in_flight = settings.link_bytes_in_flight;
  options.plan_memory_bytes = settings.plan_memory_bytes;
  engine.keep_time = KeepTimeOf(settings);
  engine.jobs = JobsOf(settings);
  return options;
}

core::RunningLimits RunningLimitsOf(const config::Settings& settings) {
  return {.tenants = TenantsOf(settings),
          .keep_time = KeepTimeOf(settings),
          .jobs = JobsOf(settings),
          .link_bytes_in_flight = settings.link_bytes_in_flight};
}

}  // namespace geminid::service
