#include "tools/gpu-verify/nvml.h"

#include <vector>

#include "gpu/nvml_api.h"

namespace geminid::gpu_verify {
namespace {

using gpu::NvmlResult;

constexpr unsigned kMostProcesses = 256;
constexpr unsigned long long kUnknownBytes = ~0ULL;

}  // namespace

std::optional<NvmlView> ReadNvml(const std::string& pci_bus_id) {
  gpu::NvmlApi api;
  std::string error;
  gpu::NvmlDevice device = nullptr;
  if (!gpu::LoadNvmlApi(&api, &error) || api.init() != NvmlResult::kSuccess ||
      api.device_get_handle_by_pci_bus_id(pci_bus_id.c_str(), &device) != NvmlResult::kSuccess) {
    return std::nullopt;
  }
  NvmlView view;
  char version[gpu::kNvmlTextBytes] = "";
  if (api.system_get_driver_version(version, sizeof(version)) == NvmlResult::kSuccess) {
    view.driver = version;
  }
  int mode = 0;
  view.persistence = api.device_get_persistence_mode(device, &mode) != NvmlResult::kSuccess
                         ? "unknown"
                     : mode != 0 ? "on"
                                 : "off";
  gpu::NvmlMemory memory{};
  if (api.device_get_memory_info(device, &memory) != NvmlResult::kSuccess) return std::nullopt;
  view.used_bytes = memory.used_bytes;
  std::vector<gpu::NvmlProcess> processes(kMostProcesses);
  unsigned count = kMostProcesses;
  if (api.device_get_compute_running_processes(device, &count, processes.data()) ==
      NvmlResult::kSuccess) {
    view.processes = static_cast<int>(count);
    for (unsigned i = 0; i < count; ++i) {
      if (processes[i].used_bytes != kUnknownBytes)
        view.attributed_bytes += processes[i].used_bytes;
    }
  }
  return view;
}

}  // namespace geminid::gpu_verify
