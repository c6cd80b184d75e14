// A GPU's state by NVML, the driver's management library, without a context. Loaded at run time.
#ifndef GEMINID_TOOLS_GPU_VERIFY_NVML_H_
#define GEMINID_TOOLS_GPU_VERIFY_NVML_H_

#include <cstdint>
#include <optional>
#include <string>

namespace geminid::gpu_verify {

struct NvmlView {
  std::string driver;             // version, such as 550.54.15
  std::string persistence;        // on, off or unknown
  uint64_t used_bytes = 0;        // of the device
  uint64_t attributed_bytes = 0;  // to the compute processes that NVML lists
  int processes = 0;
};

// Nullopt if the library is missing or does not know the device.
std::optional<NvmlView> ReadNvml(const std::string& pci_bus_id);

}  // namespace geminid::gpu_verify

#endif  // GEMINID_TOOLS_GPU_VERIFY_NVML_H_
