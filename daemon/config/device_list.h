// The devices of a node as one text: "host:0=8GiB,host:1=8GiB@1".
#ifndef GEMINID_DAEMON_CONFIG_DEVICE_LIST_H_
#define GEMINID_DAEMON_CONFIG_DEVICE_LIST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/v1/config.pb.h"
#include "proto/shm/device.h"

namespace geminid::config {

struct DeviceSetting {
  shm::DeviceKind kind = shm::DeviceKind::kHost;
  uint64_t bytes = 0;
  int32_t numa_node = shm::kNoNumaNode;
};

// Each device is KIND:INDEX=MEMORY[@NUMA_NODE]; commas between them, no blanks. INVALID_ARGUMENT
// says at which character something is wrong, and what was meant perhaps.
absl::StatusOr<std::vector<v1::Device>> ParseDeviceList(const std::string& text);

// The other way round, for one.
std::string ToText(const v1::Device& device);

// The kind of that name; INVALID_ARGUMENT with what was meant perhaps.
absl::StatusOr<shm::DeviceKind> ParseDeviceKind(const std::string& text);

}  // namespace geminid::config

#endif  // GEMINID_DAEMON_CONFIG_DEVICE_LIST_H_
