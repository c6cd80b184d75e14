#include "daemon/agent/gpu_list.h"

#include <array>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/driver.h"
#include "proto/shm/device.h"

namespace geminid::agent {
namespace {

constexpr char kPciDevices[] = "/sys/bus/pci/devices/";
constexpr unsigned kMigEnabled = 1;

using Text = std::array<char, gpu::kNvmlTextBytes>;

int32_t ReadNumaNode(const std::string& pci) {
  std::ifstream file(absl::StrCat(kPciDevices, LinuxPciName(pci), "/numa_node"));
  std::string line;
  return std::getline(file, line) ? ParseNumaNode(line) : shm::kNoNumaNode;
}

// 0: the GPU is not divided, or cannot be.
unsigned MigInstances(const gpu::NvmlApi& nvml, gpu::NvmlDevice device) {
  unsigned current = 0;
  unsigned pending = 0;
  if (nvml.device_get_mig_mode(device, &current, &pending) != gpu::NvmlResult::kSuccess ||
      current != kMigEnabled) {
    return 0;
  }
  unsigned most = 0;
  const bool known =
      nvml.device_get_max_mig_device_count(device, &most) == gpu::NvmlResult::kSuccess;
  return known ? most : 0;
}

void Add(const absl::StatusOr<GpuFacts>& gpu, std::vector<GpuFacts>* gpus,
         std::vector<absl::Status>* silent) {
  if (gpu.ok()) {
    gpus->push_back(*gpu);
  } else {
    silent->push_back(gpu.status());
  }
}

}  // namespace

std::string LinuxPciName(const std::string& nvml_address) {
  constexpr size_t kLength = 12;
  const size_t extra = nvml_address.size() > kLength ? nvml_address.size() - kLength : 0;
  return absl::AsciiStrToLower(nvml_address.substr(extra));
}

int32_t ParseNumaNode(const std::string& text) {
  int32_t node = shm::kNoNumaNode;
  return absl::SimpleAtoi(text, &node) && node >= 0 ? node : shm::kNoNumaNode;
}

absl::StatusOr<GpuFacts> ReadGpu(const gpu::NvmlApi& nvml, gpu::NvmlDevice device) {
  GpuFacts facts = {};
  Text text = {};
  GEMINID_RETURN_IF_ERROR(gpu::ToStatus(
      nvml, nvml.device_get_uuid(device, text.data(), gpu::kNvmlTextBytes), "nvmlDeviceGetUUID"));
  SetText(text.data(), facts.uuid);
  facts.is_mig = std::string(facts.uuid).rfind("MIG-", 0) == 0 ? 1 : 0;
  GEMINID_RETURN_IF_ERROR(gpu::ToStatus(
      nvml, nvml.device_get_name(device, text.data(), gpu::kNvmlTextBytes), "nvmlDeviceGetName"));
  SetText(text.data(), facts.name);
  gpu::NvmlDevice whole = device;  // only the whole GPU surely knows its address
  if (facts.is_mig != 0) {
    GEMINID_RETURN_IF_ERROR(gpu::ToStatus(nvml, nvml.device_get_gpu_of_mig_device(device, &whole),
                                          "nvmlDeviceGetDeviceHandleFromMigDeviceHandle"));
  }
  gpu::NvmlPciInfo pci = {};
  GEMINID_RETURN_IF_ERROR(
      gpu::ToStatus(nvml, nvml.device_get_pci_info(whole, &pci), "nvmlDeviceGetPciInfo"));
  SetText(pci.bus_id, facts.pci);
  facts.numa_node = ReadNumaNode(facts.pci);
  gpu::NvmlMemory memory = {};
  GEMINID_RETURN_IF_ERROR(
      gpu::ToStatus(nvml, nvml.device_get_memory_info(device, &memory), "nvmlDeviceGetMemoryInfo"));
  facts.total_bytes = memory.total_bytes;
  facts.free_bytes = memory.free_bytes;
  return facts;
}

absl::StatusOr<std::vector<GpuFacts>> ListGpus(const gpu::NvmlApi& nvml,
                                               std::vector<absl::Status>* silent) {
  unsigned count = 0;
  GEMINID_RETURN_IF_ERROR(gpu::ToStatus(nvml, nvml.device_get_count(&count), "nvmlDeviceGetCount"));
  std::vector<GpuFacts> gpus;
  for (unsigned i = 0; i < count; ++i) {
    gpu::NvmlDevice device = nullptr;
    const absl::Status found = gpu::ToStatus(nvml, nvml.device_get_handle_by_index(i, &device),
                                             "nvmlDeviceGetHandleByIndex");
    if (!found.ok()) {
      silent->push_back(found);
      continue;
    }
    const unsigned instances = MigInstances(nvml, device);
    if (instances == 0) Add(ReadGpu(nvml, device), &gpus, silent);
    for (unsigned j = 0; j < instances; ++j) {
      gpu::NvmlDevice instance = nullptr;
      const auto result = nvml.device_get_mig_device_handle_by_index(device, j, &instance);
      if (result == gpu::NvmlResult::kSuccess) Add(ReadGpu(nvml, instance), &gpus, silent);
    }
  }
  return gpus;
}

}  // namespace geminid::agent
