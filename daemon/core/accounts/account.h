// An account counts the bytes of one memory of the node: of the host, of the disk, or of one
// device, which is a GPU or stands in for one.
#ifndef GEMINID_DAEMON_CORE_ACCOUNTS_ACCOUNT_H_
#define GEMINID_DAEMON_CORE_ACCOUNTS_ACCOUNT_H_

#include <compare>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/core/basics/ids.h"
#include "proto/shm/device.h"

namespace geminid::core {

using shm::DeviceDescription;

struct Account {
  Tier tier = Tier::kNone;
  DeviceIndex device{};  // of Tier::kDevice; else 0
  auto operator<=>(const Account&) const = default;
};
inline constexpr Account kHostAccount{.tier = Tier::kHost};
inline constexpr Account kDiskAccount{.tier = Tier::kDisk};
constexpr Account DeviceAccount(DeviceIndex device) {
  return {.tier = Tier::kDevice, .device = device};
}

// "device 1", "host memory", "disk".
std::string Name(const Account& account);
// "device 1 (host, 8.0 GiB)".
std::string Describe(const DeviceDescription& device);

// A host device whose arenas are whole small pages.
DeviceDescription HostDevice(DeviceIndex index, uint64_t capacity_bytes);

// Chooses the device of a session that asks for `wanted`. With kAnyDevice the ranks of a node take
// the devices in turn: ranks 0, 1, 2, 3 of two devices get 0, 1, 0, 1. kAnyDevice skips a device
// without memory (its GPU is missing); a session that names that device gets it all the same.
// INVALID_ARGUMENT: no such device; the message lists the existing ones.
absl::StatusOr<DeviceIndex> ChooseDevice(const std::vector<DeviceDescription>& devices,
                                         DeviceIndex wanted, int32_t local_rank);

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_ACCOUNTS_ACCOUNT_H_
