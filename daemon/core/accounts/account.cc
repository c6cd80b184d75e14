#include "daemon/core/accounts/account.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"

namespace geminid::core {
namespace {

constexpr uint64_t kSmallPageBytes = 4096;

}  // namespace

std::string Name(const Account& account) {
  switch (account.tier) {
    case Tier::kDevice:
      return absl::StrCat("device ", shm::Value(account.device));
    case Tier::kHost:
      return "host memory";
    case Tier::kDisk:
      return "disk";
    case Tier::kNone:
      break;
  }
  return "no account";
}

std::string Describe(const DeviceDescription& device) {
  return absl::StrCat("device ", shm::Value(device.index), " (", shm::Name(device.kind), ", ",
                      base::FormatBytes(device.capacity_bytes), ")");
}

DeviceDescription HostDevice(DeviceIndex index, uint64_t capacity_bytes) {
  DeviceDescription device = {};
  device.index = index;
  device.kind = shm::DeviceKind::kHost;
  device.numa_node = shm::kNoNumaNode;
  device.capacity_bytes = capacity_bytes;
  device.granularity_bytes = kSmallPageBytes;
  const std::string name = absl::StrCat("host device ", shm::Value(index));
  std::memcpy(device.name, name.data(), name.size());
  return device;
}

absl::StatusOr<DeviceIndex> ChooseDevice(const std::vector<DeviceDescription>& devices,
                                         DeviceIndex wanted, int32_t local_rank) {
  const auto count = static_cast<uint32_t>(devices.size());
  std::vector<DeviceIndex> with_memory;
  for (const DeviceDescription& device : devices) {
    if (device.capacity_bytes > 0) with_memory.push_back(device.index);
  }
  if (wanted == shm::kAnyDevice && !with_memory.empty()) {
    return with_memory[static_cast<size_t>(local_rank) % with_memory.size()];
  }
  if (shm::Value(wanted) < count) return wanted;
  const std::string there =
      absl::StrJoin(devices, ", ", [](std::string* out, const DeviceDescription& device) {
        absl::StrAppend(out, Describe(device));
      });
  return absl::InvalidArgumentError(
      absl::StrCat("there is no device ", shm::Value(wanted), "; this daemon has ", there,
                   "; ask for one of these, or leave the device out to get one by local rank"));
}

}  // namespace geminid::core
