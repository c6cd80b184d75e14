#include "daemon/service/entry/devices.h"

#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "daemon/config/guarantees.h"
#include "daemon/gpus/probe.h"
#include "daemon/os/log.h"

namespace geminid::service {
namespace {

uint64_t Hash(const std::string& text) {
  base::Fnv1a hash;
  hash.AddText(text);
  return hash.value();
}

shm::Uuid UuidOf(const os::Machine& machine, const std::string& socket, uint32_t index) {
  const std::string device = absl::StrCat(machine.id, "\n", socket, "\n", index);
  return shm::MakeUuid(Hash("high\n" + device), Hash("low\n" + device));
}

absl::Status CheckNodes(const std::vector<core::DeviceDescription>& devices,
                        const std::vector<os::NodeMemory>& nodes) {
  const std::string totals =
      absl::StrJoin(nodes, ", ", [](std::string* out, const os::NodeMemory& memory) {
        absl::StrAppend(out, "node ", memory.node, ": ", base::FormatBytes(memory.total_bytes));
      });
  std::map<int, uint64_t> bytes_by_node;
  for (const core::DeviceDescription& device : devices) {
    if (device.kind != shm::DeviceKind::kHost || device.numa_node == shm::kNoNumaNode) continue;
    const auto found = std::find_if(
        nodes.begin(), nodes.end(),
        [&device](const os::NodeMemory& memory) { return memory.node == device.numa_node; });
    if (found == nodes.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat(core::Describe(device), " is configured on NUMA node ", device.numa_node,
                       ", which this machine does not have; it has ", totals));
    }
    uint64_t& bytes = bytes_by_node[device.numa_node];
    bytes += device.capacity_bytes;
    if (bytes <= found->total_bytes) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the devices on NUMA node ", device.numa_node, ", ", core::Describe(device),
                     " included, take ", base::FormatBytes(bytes), "; the machine has ", totals,
                     "; give them less memory, or another node"));
  }
  return absl::OkStatus();
}

void DescribeGpu(const gpus::NodeDevice& device, core::DeviceDescription* description) {
  description->kind = shm::DeviceKind::kCuda;
  description->granularity_bytes = gpus::kGranularityBytes;
  if (!device.gpu.has_value()) return agent::SetText("no GPU", description->name);
  description->numa_node = device.gpu->numa_node;
  agent::SetText(absl::StrCat(device.gpu->name, " at ", device.gpu->pci), description->name);
  if (const absl::StatusOr<shm::Uuid> uuid = agent::ParseUuid(device.gpu->uuid); uuid.ok()) {
    description->uuid = *uuid;
  }
}

// Logs each reason once, with the devices it is for; without a driver there is one reason.
void LogMissing(const absl::Status& found, const std::vector<gpus::NodeDevice>& devices) {
  std::map<std::string, std::vector<size_t>> by_reason;
  if (!found.ok()) by_reason[std::string(found.message())];
  for (size_t i = 0; i < devices.size(); ++i) {
    if (!devices[i].why_not.empty()) by_reason[devices[i].why_not].push_back(i);
  }
  for (const auto& [why, indices] : by_reason) {
    os::Log(os::LogLevel::kWarning, "no GPU; the other devices are served",
            {{"for_devices", absl::StrJoin(indices, ",")}, {"why", why}});
  }
}

}  // namespace

absl::StatusOr<std::vector<gpus::NodeDevice>> FindDevices(const std::string& agent_program,
                                                          config::Settings* settings) {
  absl::StatusOr<std::vector<agent::GpuFacts>> found = std::vector<agent::GpuFacts>();
  if (gpus::WantsGpus(settings->devices)) {
    found = gpus::FindGpus(agent_program, kProbePatience);
  }
  absl::StatusOr<std::vector<gpus::NodeDevice>> devices =
      gpus::AssignGpus(settings->devices, found);
  if (!devices.ok()) return devices;
  LogMissing(found.status(), *devices);
  settings->devices.clear();
  for (const gpus::NodeDevice& device : *devices) settings->devices.push_back(device.setting);
  if (absl::Status status = config::CheckGuarantees(*settings); !status.ok()) return status;
  return devices;
}

absl::StatusOr<std::vector<core::DeviceDescription>> DescribeDevices(
    const std::vector<gpus::NodeDevice>& devices, const std::string& socket,
    const os::Machine& machine) {
  std::vector<core::DeviceDescription> descriptions;
  for (const gpus::NodeDevice& device : devices) {
    const auto index = static_cast<uint32_t>(descriptions.size());
    core::DeviceDescription description =
        core::HostDevice(shm::DeviceIndex{index}, device.setting.bytes);
    description.numa_node = device.setting.numa_node;
    description.uuid = UuidOf(machine, socket, index);
    if (device.setting.kind == shm::DeviceKind::kCuda) DescribeGpu(device, &description);
    descriptions.push_back(description);
  }
  if (absl::Status status = CheckNodes(descriptions, machine.nodes); !status.ok()) return status;
  return descriptions;
}

}  // namespace geminid::service
