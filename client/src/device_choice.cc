#include "client/src/device_choice.h"

#include <cstring>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace geminid {

static_assert(static_cast<uint32_t>(DeviceKind::kHost) ==
              static_cast<uint32_t>(shm::DeviceKind::kHost));
static_assert(static_cast<uint32_t>(DeviceKind::kCuda) ==
              static_cast<uint32_t>(shm::DeviceKind::kCuda));

absl::StatusOr<shm::DeviceIndex> WantedDevice(std::optional<DeviceIndex> option,
                                              const char* environment) {
  uint32_t index = 0;
  if (option.has_value()) {
    index = static_cast<uint32_t>(*option);
  } else if (environment == nullptr || *environment == '\0') {
    return shm::kAnyDevice;
  } else if (const std::string text = environment;
             text.find_first_not_of("0123456789") != std::string::npos ||
             !absl::SimpleAtoi(text, &index)) {
    return absl::InvalidArgumentError(absl::StrCat(kDeviceVariable, "=\"", text,
                                                   "\" is not the index of a device; set it to a "
                                                   "number from 0, or unset it"));
  }
  if (index < shm::kMaxDevices) return shm::DeviceIndex{index};
  return absl::InvalidArgumentError(absl::StrCat("device ", index,
                                                 " is asked for; indices go from "
                                                 "0 to ",
                                                 shm::kMaxDevices - 1));
}

DeviceDescription FromShm(const shm::DeviceDescription& device) {
  DeviceDescription description;
  description.index = DeviceIndex{shm::Value(device.index)};
  description.kind = static_cast<DeviceKind>(device.kind);
  description.uuid = shm::ToString(device.uuid);
  description.name.assign(device.name, strnlen(device.name, sizeof device.name));
  if (device.numa_node != shm::kNoNumaNode) description.numa_node = device.numa_node;
  description.capacity_bytes = device.capacity_bytes;
  description.granularity_bytes = device.granularity_bytes;
  return description;
}

}  // namespace geminid
