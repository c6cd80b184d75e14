// A node's devices as one text, such as "host:0=8GiB,host:1=8GiB@1,cuda:2=64GiB" or "cuda".
#ifndef GEMINID_DAEMON_CONFIG_DEVICE_LIST_H_
#define GEMINID_DAEMON_CONFIG_DEVICE_LIST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/v1/config.pb.h"
#include "proto/shm/device.h"

namespace geminid::config {

struct DeviceSetting {
  shm::DeviceKind kind = shm::DeviceKind::kHost;
  uint64_t bytes = 0;                    // 0: most of the GPU's memory
  int32_t numa_node = shm::kNoNumaNode;  // only for a host device
  std::string gpu{};                     // UUID or PCI address; empty: any GPU
  bool all_gpus = false;                 // stands for every GPU; nothing else is set
};

// A device is host:INDEX=MEMORY[@NUMA_NODE] or cuda:INDEX[=MEMORY][@GPU], where GPU is a UUID or a
// PCI address. "cuda" alone stands for every GPU. Commas separate devices; blanks are not allowed.
// INVALID_ARGUMENT says at which character the text is wrong, and may suggest a correction.
absl::StatusOr<std::vector<v1::Device>> ParseDeviceList(const std::string& text);

// The inverse of ParseDeviceList, for one device.
std::string ToText(const v1::Device& device);

// Whether `text` has the form of a GPU's UUID or of a PCI address.
bool IsGpuName(const std::string& text);

// The kind with that name. INVALID_ARGUMENT may suggest the name that was meant.
absl::StatusOr<shm::DeviceKind> ParseDeviceKind(const std::string& text);

}  // namespace geminid::config

#endif  // GEMINID_DAEMON_CONFIG_DEVICE_LIST_H_
