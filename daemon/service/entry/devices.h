// The devices of the node, from what was configured and what the machine offers.
#ifndef GEMINID_DAEMON_SERVICE_ENTRY_DEVICES_H_
#define GEMINID_DAEMON_SERVICE_ENTRY_DEVICES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/config/settings.h"
#include "daemon/core/accounts/account.h"
#include "daemon/gpus/assign.h"
#include "daemon/os/machine.h"

namespace geminid::service {

// For the first agent to say which GPUs there are: the driver takes a second or two for each where
// nothing keeps it initialised. The unit's TimeoutStartSec= is longer.
inline constexpr absl::Duration kProbePatience = absl::Seconds(60);

// The devices of the settings with the GPUs that are there, by the word of `agent_program`, and
// puts them into the settings. GPUs that are missing are logged.
absl::StatusOr<std::vector<gpus::NodeDevice>> FindDevices(const std::string& agent_program,
                                                          config::Settings* settings);

// A host device's UUID follows from the machine, the daemon's socket and its index, a GPU has one.
// A device without the GPU that it was to be has no memory. FAILED_PRECONDITION for a device on a
// NUMA node that is not there or has less memory in all than the devices on it, with the numbers of
// each node.
absl::StatusOr<std::vector<core::DeviceDescription>> DescribeDevices(
    const std::vector<gpus::NodeDevice>& devices, const std::string& socket,
    const os::Machine& machine);

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_ENTRY_DEVICES_H_
