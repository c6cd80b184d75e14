// What NVML says of a GPU's faults. What the GPU, the driver or its permissions do not let it say
// is not known, and no error.
#ifndef GEMINID_DAEMON_AGENT_GPU_FAULTS_H_
#define GEMINID_DAEMON_AGENT_GPU_FAULTS_H_

#include <string>

#include "daemon/agent/messages.h"
#include "gpu/nvml_api.h"

namespace geminid::agent {

// Xids are watched from its making on: those of before are not told. Of one thread.
class GpuFaults {
 public:
  // Of the GPU of that UUID, or the GPU that it is an instance of. `nvml` outlives it.
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
  unsigned instance_ = gpu::kNvmlNoInstance;  // that is served; none: all of it, or not known
  gpu::NvmlEventSet events_ = nullptr;        // null: Xids are not watched
};

}  // namespace geminid::agent

#endif  // GEMINID_DAEMON_AGENT_GPU_FAULTS_H_
