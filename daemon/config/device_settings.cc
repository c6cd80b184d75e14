#include "daemon/config/device_settings.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "daemon/config/size.h"
#include "proto/shm/limits.h"

namespace geminid::config {
namespace {

using Problems = std::vector<DeviceProblem>;

void CheckAllGpus(int position, const v1::Device& device, Problems* problems) {
  const bool alone = device.index() == 0 && device.memory().empty() && device.gpu().empty() &&
                     !device.has_numa_node();
  if (device.kind() == shm::Name(shm::DeviceKind::kCuda) && alone) return;
  problems->push_back(
      {position, "all_gpus",
       "all_gpus needs the kind cuda and no other field; list single devices to set more"});
}

uint64_t ReadMemory(int position, const v1::Device& device, bool is_gpu, Problems* problems) {
  if (is_gpu && device.memory().empty()) return 0;
  const absl::StatusOr<uint64_t> bytes = ParseSize(device.memory());
  const absl::Status status = bytes.ok() ? CheckArenaSize(*bytes) : bytes.status();
  if (!status.ok()) problems->push_back({position, "memory", std::string(status.message())});
  if (bytes.ok() && *bytes == 0) {
    problems->push_back(
        {position, "memory",
         is_gpu ? "a GPU of 0 bytes serves no rank; leave memory out to get most of the GPU"
                : "a device of 0 bytes serves no rank; give it memory"});
  }
  return bytes.value_or(0);
}

DeviceSetting ReadDevice(int position, const v1::Device& device, Problems* problems) {
  DeviceSetting setting;
  const absl::StatusOr<shm::DeviceKind> kind = ParseDeviceKind(device.kind());
  if (!kind.ok()) problems->push_back({position, "kind", std::string(kind.status().message())});
  setting.kind = kind.value_or(shm::DeviceKind::kHost);
  const bool is_gpu = setting.kind == shm::DeviceKind::kCuda;
  setting.bytes = ReadMemory(position, device, is_gpu, problems);
  if (device.has_numa_node()) setting.numa_node = static_cast<int32_t>(device.numa_node());
  if (is_gpu && device.has_numa_node()) {
    problems->push_back(
        {position, "numa_node", "the NUMA node of a GPU is fixed: leave numa_node out"});
  }
  setting.gpu = device.gpu();
  if (!setting.gpu.empty() && (!is_gpu || !IsGpuName(setting.gpu))) {
    problems->push_back({position, "gpu",
                         absl::StrCat("'", setting.gpu,
                                      "' is not the UUID or the PCI address of a "
                                      "GPU, or the kind is not cuda")});
  }
  return setting;
}

}  // namespace

absl::Status CheckArenaSize(uint64_t bytes) {
  if (bytes <= shm::kMaxArenaBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("it is more than an arena can have, ", base::FormatBytes(shm::kMaxArenaBytes)));
}

std::vector<DeviceProblem> ReadDevices(const v1::Config& config,
                                       std::vector<DeviceSetting>* settings) {
  Problems problems;
  std::vector<int> numbered;
  std::vector<int> all_gpus;
  for (int i = 0; i < config.device_size(); ++i) {
    (config.device(i).all_gpus() ? all_gpus : numbered).push_back(i);
  }
  std::vector<std::optional<DeviceSetting>> by_index(numbered.size());
  for (const int i : numbered) {
    const v1::Device& device = config.device(i);
    if (device.index() >= by_index.size()) {
      problems.push_back(
          {i, "index",
           absl::StrCat("device ", device.index(), " leaves a gap: ", by_index.size(),
                        " devices are numbered from 0 to ", by_index.size() - 1)});
      continue;
    }
    if (by_index[device.index()].has_value()) {
      problems.push_back({i, "index", absl::StrCat("device ", device.index(), " is given twice")});
    }
    by_index[device.index()] = ReadDevice(i, device, &problems);
  }
  settings->clear();
  for (const std::optional<DeviceSetting>& device : by_index) {
    if (device.has_value()) settings->push_back(*device);
  }
  for (const int i : all_gpus) {
    CheckAllGpus(i, config.device(i), &problems);
    settings->push_back({.kind = shm::DeviceKind::kCuda, .all_gpus = true});
  }
  if (all_gpus.size() > 1) problems.push_back({all_gpus[1], "all_gpus", "it is given twice"});
  return problems;
}

}  // namespace geminid::config
