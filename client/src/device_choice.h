// Which device a session asks for, and how the daemon describes the device it got.
#ifndef GEMINID_CLIENT_SRC_DEVICE_CHOICE_H_
#define GEMINID_CLIENT_SRC_DEVICE_CHOICE_H_

#include <optional>

#include "absl/status/statusor.h"
#include "geminid/types.h"
#include "proto/shm/device.h"

namespace geminid {

inline constexpr char kDeviceVariable[] = "GEMINID_DEVICE";

// `option`; else the number in `environment`, the value of $GEMINID_DEVICE (null or empty: unset);
// else kAnyDevice. INVALID_ARGUMENT if the value is not an index.
absl::StatusOr<shm::DeviceIndex> WantedDevice(std::optional<DeviceIndex> option,
                                              const char* environment);

DeviceDescription FromShm(const shm::DeviceDescription& device);

}  // namespace geminid

#endif  // GEMINID_CLIENT_SRC_DEVICE_CHOICE_H_
