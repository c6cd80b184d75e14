// The GPUs of the machine as NVML knows them: no context is made, and no device memory taken.
#ifndef GEMINID_DAEMON_AGENT_GPU_LIST_H_
#define GEMINID_DAEMON_AGENT_GPU_LIST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/agent/messages.h"
#include "gpu/nvml_api.h"

namespace geminid::agent {

// Reads one GPU, without its granularity, which only CUDA knows.
absl::StatusOr<GpuFacts> ReadGpu(const gpu::NvmlApi& nvml, gpu::NvmlDevice device);

// All GPUs, in NVML's order; a GPU in MIG mode is listed as its instances. A GPU that does not
// answer is left out, and its error is added to `silent`.
absl::StatusOr<std::vector<GpuFacts>> ListGpus(const gpu::NvmlApi& nvml,
                                               std::vector<absl::Status>* silent);

// The name of a PCI device's folder under /sys/bus/pci/devices: "0000:3b:00.0" for NVML's
// "00000000:3B:00.0".
std::string LinuxPciName(const std::string& nvml_address);
// The node in `text`, the content of a numa_node file there; kNoNumaNode for -1 or no number.
int32_t ParseNumaNode(const std::string& text);

}  // namespace geminid::agent

#endif  // GEMINID_DAEMON_AGENT_GPU_LIST_H_
