// The GPUs of the machine as NVML knows them: no context is made, and no device memory taken.
#ifndef GEMINID_DAEMON_AGENT_GPU_LIST_H_
#define GEMINID_DAEMON_AGENT_GPU_LIST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/agent/messages.h"
#include "gpu/nvml_api.h"

namespace geminid::agent {

// One of them, without its granularity, which is CUDA's to say.
absl::StatusOr<GpuFacts> ReadGpu(const gpu::NvmlApi& nvml, gpu::NvmlDevice device);

// All, in NVML's order; a GPU in MIG mode as its instances. One that does not answer is left out,
// and what it said instead is in `silent`.
absl::StatusOr<std::vector<GpuFacts>> ListGpus(const gpu::NvmlApi& nvml,
                                               std::vector<absl::Status>* silent);

// The folder's name of a PCI device under /sys/bus/pci/devices: "0000:3b:00.0" for NVML's
// "00000000:3B:00.0".
std::string LinuxPciName(const std::string& nvml_address);
// The node that `text`, a numa_node file there, names; kNoNumaNode for -1 or what is no number.
int32_t ParseNumaNode(const std::string& text);

}  // namespace geminid::agent

#endif  // GEMINID_DAEMON_AGENT_GPU_LIST_H_
