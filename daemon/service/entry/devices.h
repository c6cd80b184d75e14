// The devices of the node, from what was configured and what the machine offers.
#ifndef GEMINID_DAEMON_SERVICE_ENTRY_DEVICES_H_
#define GEMINID_DAEMON_SERVICE_ENTRY_DEVICES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/core/accounts/account.h"
#include "daemon/gpus/assign.h"
#include "daemon/os/machine.h"

namespace geminid::service {

// A host device's UUID follows from the machine, the daemon's socket and its index, a GPU has one.
// A device without the GPU that it was to be has no memory. FAILED_PRECONDITION for a device on a
// NUMA node that is not there or has less memory in all than the devices on it, with the numbers of
// each node.
absl::StatusOr<std::vector<core::DeviceDescription>> DescribeDevices(
    const std::vector<gpus::NodeDevice>& devices, const std::string& socket,
    const os::Machine& machine);

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_ENTRY_DEVICES_H_
