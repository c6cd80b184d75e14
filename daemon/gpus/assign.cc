#include "daemon/gpus/assign.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "proto/shm/types.h"

namespace geminid::gpus {
namespace {

// The rest is for the processes' contexts and libraries.
constexpr uint64_t kTenthsHandedOut = 9;

using Gpus = std::vector<agent::GpuFacts>;

std::string Describe(const agent::GpuFacts& gpu) {
  return absl::StrCat(gpu.name, " at ", gpu.pci, ", ", gpu.uuid, ", ",
                      base::FormatBytes(gpu.total_bytes));
}

std::string List(const Gpus& gpus) {
  if (gpus.empty()) return "there are none";
  return absl::StrCat("there are ",
                      absl::StrJoin(gpus, "; ", [](std::string* out, const agent::GpuFacts& gpu) {
                        absl::StrAppend(out, Describe(gpu));
                      }));
}

// Linux writes four digits of the domain, the driver eight, either in lower or in upper case.
std::string NormalPci(std::string address) {
  constexpr size_t kDriversLength = 16;
  absl::AsciiStrToLower(&address);
  return std::string(kDriversLength - std::min(kDriversLength, address.size()), '0') + address;
}

bool IsNamed(const agent::GpuFacts& gpu, const std::string& name) {
  return name == gpu.uuid || NormalPci(name) == NormalPci(gpu.pci);
}

uint64_t DefaultBytes(const agent::GpuFacts& gpu) {
  const uint64_t bytes = std::min(gpu.free_bytes, gpu.total_bytes / 10 * kTenthsHandedOut);
  return bytes / kGranularityBytes * kGranularityBytes;
}

absl::Status Give(const agent::GpuFacts& gpu, size_t index, NodeDevice* device) {
  uint64_t& bytes = device->setting.bytes;
  if (bytes == 0) bytes = DefaultBytes(gpu);
  if (bytes > gpu.total_bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("device ", index, " cannot hand out ", base::FormatBytes(bytes), " of ",
                     Describe(gpu), "; give it less, or leave the size out"));
  }
  device->gpu = gpu;
  return absl::OkStatus();
}

// Takes the GPU of that name out of `left`; without a name, the next one.
std::optional<agent::GpuFacts> Take(const std::string& name, Gpus* left) {
  const auto found = std::find_if(left->begin(), left->end(), [&](const agent::GpuFacts& gpu) {
    return name.empty() || IsNamed(gpu, name);
  });
  if (found == left->end()) return std::nullopt;
  const agent::GpuFacts gpu = *found;
  left->erase(found);
  return gpu;
}

// What is to be assigned, and what is left to assign.
struct Assignment {
  std::vector<NodeDevice> devices;
  Gpus left;
  const Gpus all;
  const std::string no_driver;  // empty: there is one
};

absl::Status GiveEach(bool named, Assignment* assignment) {
  for (size_t i = 0; i < assignment->devices.size(); ++i) {
    NodeDevice& device = assignment->devices[i];
    const std::string& name = device.setting.gpu;
    if (device.setting.kind != shm::DeviceKind::kCuda || name.empty() == named) continue;
    if (const std::optional<agent::GpuFacts> gpu = Take(name, &assignment->left)) {
      if (absl::Status status = Give(*gpu, i, &device); !status.ok()) return status;
      continue;
    }
    if (named && std::any_of(assignment->all.begin(), assignment->all.end(),
                             [&](const agent::GpuFacts& gpu) { return IsNamed(gpu, name); })) {
      return absl::FailedPreconditionError(
          absl::StrCat("device ", i, " names GPU ", name, ", which another device has already"));
    }
    device.setting.bytes = 0;
    device.why_not = !assignment->no_driver.empty() ? assignment->no_driver
                     : named ? absl::StrCat("no GPU is called ", name, "; ", List(assignment->all))
                             : absl::StrCat("no GPU is left for it; ", List(assignment->all));
  }
  return absl::OkStatus();
}

}  // namespace

bool WantsGpus(const std::vector<config::DeviceSetting>& settings) {
  return std::any_of(settings.begin(), settings.end(), [](const config::DeviceSetting& setting) {
    return setting.kind == shm::DeviceKind::kCuda;
  });
}

absl::StatusOr<std::vector<NodeDevice>> AssignGpus(
    const std::vector<config::DeviceSetting>& settings, const absl::StatusOr<Gpus>& found) {
  const Gpus all = found.ok() ? *found : Gpus();
  Assignment assignment = {.devices = {},
                           .left = all,
                           .all = all,
                           .no_driver = found.ok() ? "" : std::string(found.status().message())};
  bool all_gpus = false;
  for (const config::DeviceSetting& setting : settings) {
    all_gpus = all_gpus || setting.all_gpus;
    if (!setting.all_gpus) assignment.devices.push_back({.setting = setting});
  }
  // Named GPUs first, so that no other device takes them.
  for (const bool named : {true, false}) {
    if (absl::Status status = GiveEach(named, &assignment); !status.ok()) return status;
  }
  while (all_gpus && !assignment.left.empty() && assignment.devices.size() < shm::kMaxDevices) {
    NodeDevice device = {.setting = {.kind = shm::DeviceKind::kCuda}};
    absl::Status status = Give(*Take("", &assignment.left), assignment.devices.size(), &device);
    if (!status.ok()) return status;
    assignment.devices.push_back(std::move(device));
  }
  const bool serves =
      std::any_of(assignment.devices.begin(), assignment.devices.end(),
                  [](const NodeDevice& device) { return device.setting.bytes > 0; });
  if (serves) return assignment.devices;
  return absl::FailedPreconditionError(absl::StrCat(
      "no device can be served: ", assignment.no_driver.empty() ? List(all) : assignment.no_driver,
      "; or give the daemon a host device, as in geminid --device host:0=8GiB"));
}

}  // namespace geminid::gpus
