// Translates the configuration into options for the hub and its engine.
#ifndef GEMINID_DAEMON_SERVICE_ENTRY_ENGINE_SETTINGS_H_
#define GEMINID_DAEMON_SERVICE_ENTRY_ENGINE_SETTINGS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/config/settings.h"
#include "daemon/gpus/assign.h"
#include "daemon/os/numa.h"
#include "daemon/service/sessions/session_hub_options.h"

namespace geminid::service {

// `devices`: those of the settings, with the GPUs that were found. See DescribeDevices for errors.
absl::StatusOr<SessionHubOptions> HubOptionsOf(const config::Settings& settings,
                                               const std::vector<gpus::NodeDevice>& devices,
                                               const os::Numa& numa, uint64_t daemon_epoch);

// The limits that a reload may change.
core::RunningLimits RunningLimitsOf(const config::Settings& settings);

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_ENTRY_ENGINE_SETTINGS_H_
