// Reads a GPU's faults from NVML. Values that the GPU, the driver or its permissions withhold are
// unknown, which is no error.
#ifndef GEMINID_DAEMON_AGENT_GPU_FAULTS_H_
#define GEMINID_DAEMON_AGENT_GPU_FAULTS_H_

#include <string>

#include "daemon/agent/messages.h"
#include "gpu/nvml_api.h"

namespace geminid::agent {

// Xids are watched from its construction on; earlier ones are not reported. For one thread.
class GpuFaults {
 public:
  // Reads the GPU with that UUID, or the GPU that it is an instance of. `nvml` must outlive this.
  GpuFaults(const gpu::NvmlApi* nvml, const std::string& uuid);
  GpuFaults(const GpuFaults&) = delete;
  GpuFaults& operator=(const GpuFaults&) = delete;
  ~GpuFaults();

  // Does not wait.
  Faults Read();

 private:
  void FindGpu(const std::string& uuid);
  void Watch();
  bool IsOurs(const gpu::NvmlEventData& event) const;
  void ReadErrors(int counter, uint32_t bit, uint64_t* errors, uint32_t* known) const;
  void ReadXids(Faults* faults);

  const gpu::NvmlApi* const nvml_;
  gpu::NvmlDevice gpu_ = nullptr;             // null: it was not found
  unsigned instance_ = gpu::kNvmlNoInstance;  // the one served; none: all of it, or not known
  gpu::NvmlEventSet events_ = nullptr;        // null: Xids are not watched
};

}  // namespace geminid::agent

#endif  // GEMINID_DAEMON_AGENT_GPU_FAULTS_H_
