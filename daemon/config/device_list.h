// The devices of a node as one text: "host:0=8GiB,host:1=8GiB@1,cuda:2=64GiB", or "cuda".
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
  uint64_t bytes = 0;                    // 0: most of the GPU
  int32_t numa_node = shm::kNoNumaNode;  // of a host device
  std::string gpu{};                     // UUID or PCI address; empty: any
  bool all_gpus = false;                 // instead of all above
};

// Each device is host:INDEX=MEMORY[@NUMA_NODE] or cuda:INDEX[=MEMORY][@GPU], where GPU is a UUID or
// a PCI address; "cuda" alone is every GPU. Commas between them, no blanks. INVALID_ARGUMENT says
// at which character something is wrong, and what was meant perhaps.
absl::StatusOr<std::vector<v1::Device>> ParseDeviceList(const std::string& text);

// The other way round, for one.
std::string ToText(const v1::Device& device);

// Whether `text` has the form of a GPU's UUID or of a PCI address.
bool IsGpuName(const std::string& text);

// The kind of that name; INVALID_ARGUMENT with what was meant perhaps.
absl::StatusOr<shm::DeviceKind> ParseDeviceKind(const std::string& text);

}  // namespace geminid::config

#endif  // GEMINID_DAEMON_CONFIG_DEVICE_LIST_H_
