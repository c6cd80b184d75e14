// Describes the node's devices, from the configuration and what the machine offers.
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

// How long the first agent may take to list the GPUs: the driver takes a second or two for each
// unless something keeps it initialised. The unit's TimeoutStartSec= is longer.
inline constexpr absl::Duration kProbePatience = absl::Seconds(60);

// Matches the devices of the settings with the GPUs that `agent_program` finds, and puts the result
// into the settings. Missing GPUs are logged.
absl::StatusOr<std::vector<gpus::NodeDevice>> FindDevices(const std::string& agent_program,
                                                          config::Settings* settings);

// A host device's UUID is made from the machine, the daemon's socket and its index; a GPU has its
// own. A device whose GPU is missing has no memory. FAILED_PRECONDITION: a device's NUMA node does
// not exist, or has less memory in total than the devices on it. The message has the numbers of
// each node.
absl::StatusOr<std::vector<core::DeviceDescription>> DescribeDevices(
    const std::vector<gpus::NodeDevice>& devices, const std::string& socket,
    const os::Machine& machine);

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_ENTRY_DEVICES_H_
