// The arena of a GPU: slabs that its agent made.
#ifndef GEMINID_DAEMON_GPUS_GPU_ARENA_H_
#define GEMINID_DAEMON_GPUS_GPU_ARENA_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "daemon/gpus/gpu_agent.h"
#include "daemon/memory/device_arena.h"

namespace geminid::gpus {

class GpuArena : public memory::DeviceArena {
 public:
  // Without slabs. `agent` outlives it.
  explicit GpuArena(GpuAgent* agent) : agent_(agent) {}

  // Adds `bytes`, a multiple of the granularity, as slabs. With an error, those that were made stay
  // until Revoke. See GpuAgent::MakeSlab; CANCELLED when *cancelled became true, between two slabs.
  absl::Status Fill(uint64_t bytes, bool scrub, const std::atomic<bool>& cancelled);

  std::vector<Slab> slabs() const override;
  double populate_seconds() const override { return seconds_; }

  // Nobody can take device memory from a process that has it mapped: it comes back when the process
  // that it was for has ended or has let go of it, and is charged as long.
  void Revoke(base::UniqueFd holder, std::function<void(absl::Status)> done) override;

 private:
  GpuAgent* const agent_;
  std::vector<gpus::Slab> slabs_;
  double seconds_ = 0;
};

}  // namespace geminid::gpus

#endif  // GEMINID_DAEMON_GPUS_GPU_ARENA_H_
