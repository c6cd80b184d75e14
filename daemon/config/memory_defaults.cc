#include "daemon/config/memory_defaults.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/units.h"
#include "daemon/config/guarantees.h"

namespace geminid::config {
namespace {

constexpr uint64_t kBudgetFifths = 4;  // programs keep the rest
constexpr uint64_t kDeviceEighths = 3;
using base::kMiB;

uint64_t WholeMiB(uint64_t bytes) { return bytes / kMiB * kMiB; }

uint64_t Minus(uint64_t from, uint64_t what) { return from > what ? from - what : 0; }

// The memory of host devices, which is RAM.
uint64_t DeviceBytes(const Settings& settings) {
  uint64_t sum = 0;
  for (const DeviceSetting& device : settings.devices) {
    if (device.kind != shm::DeviceKind::kHost) continue;
    // Saturates: no machine has so much, and the caller only compares the sum with its memory.
    sum = device.bytes > ~sum ? ~uint64_t{0} : sum + device.bytes;
  }
  return sum;
}

// Shows this computed size as the value of `key`, with the machine as its origin.
void SetText(const std::string& key, uint64_t bytes, Settings* settings) {
  const std::string text = absl::StrCat(bytes / kMiB, "MiB");
  if (key == "host_memory") settings->effective.set_host_memory(text);
  if (key == "device_memory") settings->effective.set_device_memory(text);
  for (Origin& origin : settings->origins) {
    if (origin.key == key) origin = {key, text, kFromMachine};
  }
}

absl::Status NothingLeft(const char* key, uint64_t budget, uint64_t taken, const char* taker) {
  return absl::InvalidArgumentError(
      absl::StrCat(key, " is not given, and nothing is left for it: by default at most ",
                   base::FormatBytes(budget), " are handed out, and ", taker, " has ",
                   base::FormatBytes(taken), "; give ", key, ", or lower ", taker));
}

}  // namespace

absl::Status FillInMemory(const MachineMemory& machine, Settings* settings) {
  const uint64_t budget =
      WholeMiB(std::min(machine.total_bytes / 5 * kBudgetFifths, machine.available_bytes));
  const uint64_t device_share = WholeMiB(budget / 8 * kDeviceEighths);
  if (settings->devices.empty()) {
    const uint64_t host = settings->host_bytes.value_or(budget - device_share);
    const uint64_t bytes = WholeMiB(std::min(device_share, Minus(budget, host)));
    if (bytes == 0) return NothingLeft("device_memory", budget, host, "host_memory");
    settings->devices = {{.bytes = bytes}};
    SetText("device_memory", bytes, settings);
  }
  const uint64_t devices = DeviceBytes(*settings);
  if (!settings->host_bytes.has_value()) {
    const uint64_t bytes = WholeMiB(Minus(budget, devices));
    if (bytes == 0) return NothingLeft("host_memory", budget, devices, "the device memory");
    settings->host_bytes = bytes;
    SetText("host_memory", bytes, settings);
  }
  if (*settings->host_bytes <= machine.total_bytes &&
      devices <= machine.total_bytes - *settings->host_bytes) {
    return CheckGuarantees(*settings);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "host_memory (", base::FormatBytes(*settings->host_bytes), ") and the device memory (",
      base::FormatBytes(devices),
      ") are more than this machine, or the cgroup of this process, "
      "has: ",
      base::FormatBytes(machine.total_bytes), "; lower them, or leave them out to get what fits"));
}

std::string LacksHeadroom(const MachineMemory& machine, const Settings& settings,
                          uint64_t headroom_bytes) {
  const uint64_t host = *settings.host_bytes;
  const uint64_t devices = DeviceBytes(settings);
  const bool fits = machine.total_bytes >= headroom_bytes &&
                    host <= machine.total_bytes - headroom_bytes &&
                    devices <= machine.total_bytes - headroom_bytes - host;
  if (fits) return "";
  return absl::StrCat("host_memory (", base::FormatBytes(host), "), the device memory (",
                      base::FormatBytes(devices), ") and ", base::FormatBytes(headroom_bytes),
                      " that stay free for other programs are more than the ",
                      base::FormatBytes(machine.total_bytes),
                      " of this machine, or of the cgroup of this process");
}

}  // namespace geminid::config
