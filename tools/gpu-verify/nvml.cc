#include "tools/gpu-verify/nvml.h"

#include <dlfcn.h>

#include <vector>

namespace geminid::gpu_verify {
namespace {

// The library's interface, as far as it is used. Its header is not part of the CUDA toolkit's
// minimum, and the variants below have not changed since R510.
using Device = struct NvmlDeviceTag*;
struct Memory {
  unsigned long long total, free, used;
};
struct Process {
  unsigned pid;
  unsigned long long used_bytes;  // all ones: not known
  unsigned gpu_instance, compute_instance;
};
constexpr int kSuccess = 0;
constexpr unsigned kMostProcesses = 256;
constexpr unsigned long long kUnknownBytes = ~0ULL;

template <typename Function>
Function Find(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

std::optional<NvmlView> ReadNvml(const std::string& pci_bus_id) {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::nullopt;
  const auto init = Find<int (*)()>(library, "nvmlInit_v2");
  const auto get_driver = Find<int (*)(char*, unsigned)>(library, "nvmlSystemGetDriverVersion");
  const auto get_device =
      Find<int (*)(const char*, Device*)>(library, "nvmlDeviceGetHandleByPciBusId_v2");
  const auto get_memory = Find<int (*)(Device, Memory*)>(library, "nvmlDeviceGetMemoryInfo");
  const auto get_mode = Find<int (*)(Device, int*)>(library, "nvmlDeviceGetPersistenceMode");
  const auto get_processes = Find<int (*)(Device, unsigned*, Process*)>(
      library, "nvmlDeviceGetComputeRunningProcesses_v3");
  if (!init || !get_driver || !get_device || !get_memory || !get_mode || !get_processes) {
    return std::nullopt;
  }
  Device device = nullptr;
  if (init() != kSuccess || get_device(pci_bus_id.c_str(), &device) != kSuccess) {
    return std::nullopt;
  }
  NvmlView view;
  char version[96] = "";
  if (get_driver(version, sizeof(version)) == kSuccess) view.driver = version;
  int mode = 0;
  view.persistence = get_mode(device, &mode) != kSuccess ? "unknown" : mode != 0 ? "on" : "off";
  Memory memory{};
  if (get_memory(device, &memory) != kSuccess) return std::nullopt;
  view.used_bytes = memory.used;
  std::vector<Process> processes(kMostProcesses);
  unsigned count = kMostProcesses;
  if (get_processes(device, &count, processes.data()) == kSuccess) {
    view.processes = static_cast<int>(count);
    for (unsigned i = 0; i < count; ++i) {
      if (processes[i].used_bytes != kUnknownBytes)
        view.attributed_bytes += processes[i].used_bytes;
    }
  }
  return view;
}

}  // namespace geminid::gpu_verify
