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
  // Has no slabs yet. `agent` must outlive it.
  explicit GpuArena(GpuAgent* agent) : agent_(agent) {}

  // Adds `bytes`, a multiple of the granularity, as slabs. On an error, slabs that were made stay
  // until Revoke. See GpuAgent::MakeSlab. CANCELLED: *cancelled became true between two slabs.
  absl::Status Fill(uint64_t bytes, bool scrub, const std::atomic<bool>& cancelled);

  std::vector<Slab> slabs() const override;
  double populate_seconds() const override { return seconds_; }

  // Device memory cannot be taken from a process that has mapped it. It comes back when its
  // session's process has ended or has given it up, and stays charged until then.
  void Revoke(base::UniqueFd holder, std::function<void(absl::Status)> done) override;

 private:
  GpuAgent* const agent_;
  std::vector<gpus::Slab> slabs_;
  double seconds_ = 0;
};

}  // namespace geminid::gpus

#endif  // GEMINID_DAEMON_GPUS_GPU_ARENA_H_
