// The memory of one GPU, made and given out by its driver: what an agent does.
#ifndef GEMINID_DAEMON_AGENT_GPU_MEMORY_H_
#define GEMINID_DAEMON_AGENT_GPU_MEMORY_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "daemon/agent/messages.h"
#include "gpu/driver.h"

namespace geminid::agent {

// Belongs to one thread. The end of the process releases its memory. DATA_LOSS is an error of the
// device: nothing works any more in this process.
class GpuMemory {
 public:
  // The driver's first device, which must be the one of that UUID: CUDA_VISIBLE_DEVICES says so.
  // UNAVAILABLE without a driver, NOT_FOUND where it has another device or none.
  static absl::StatusOr<GpuMemory> Open(const std::string& uuid);

  const GpuFacts& facts() const { return facts_; }

  struct CreatedSlab {
    uint64_t slab = 0;
    base::UniqueFd fd;
  };
  // Makes physical memory of `bytes`, a multiple of the granularity, not mapped here. This process
  // holds it until Release, besides the owners of the descriptor, so it survives the end of either.
  // It never depends on how the driver treats a descriptor alone. RESOURCE_EXHAUSTED says what the
  // GPU has free.
  absl::StatusOr<CreatedSlab> Create(uint64_t bytes);
  // The GPU writes zeros; they have arrived when this returns. Needs a context meanwhile (some
  // hundred MiB of the GPU), and about a millisecond per GiB.
  absl::Status Scrub(uint64_t slab);
  absl::Status Release(uint64_t slab);
  // Asks NVML. Does not read the faults.
  absl::StatusOr<Health> ReadHealth() const;

 private:
  struct Slab {
    CUmemGenericAllocationHandle handle;
    uint64_t bytes;
  };

  GpuMemory(const gpu::DriverApi* driver, const gpu::NvmlApi* nvml, gpu::NvmlDevice nvml_device,
            CUdevice device, const GpuFacts& facts)
      : driver_(driver), nvml_(nvml), nvml_device_(nvml_device), device_(device), facts_(facts) {}

  absl::Status Check(CUresult result, const char* call) const;
  CUmemAllocationProp Properties() const;
  absl::StatusOr<CUmemGenericAllocationHandle> MakeHandle(uint64_t bytes);
  absl::Status EnterContext();
  void LeaveContext();
  absl::Status WriteZeros(const Slab& slab) const;
  absl::StatusOr<Slab> Find(uint64_t slab) const;

  const gpu::DriverApi* driver_;
  const gpu::NvmlApi* nvml_;
  gpu::NvmlDevice nvml_device_;
  CUdevice device_;
  GpuFacts facts_;
  bool needs_context_ = false;  // the driver makes no memory without one, so there is one
  std::map<uint64_t, Slab> slabs_;
  uint64_t slab_bytes_ = 0;
  uint64_t next_slab_ = 1;
};

}  // namespace geminid::agent

#endif  // GEMINID_DAEMON_AGENT_GPU_MEMORY_H_
