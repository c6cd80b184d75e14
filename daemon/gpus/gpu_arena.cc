#include "daemon/gpus/gpu_arena.h"

#include <utility>

#include "daemon/os/event.h"

namespace geminid::gpus {

absl::Status GpuArena::Fill(uint64_t bytes, bool scrub, const std::atomic<bool>& cancelled) {
  const int64_t begin = os::MonotonicNanoseconds();
  for (const uint64_t slab_bytes : memory::SlabSizes(bytes, memory::SlabBytes(bytes))) {
    if (cancelled.load()) return absl::CancelledError("the daemon ends");
    absl::StatusOr<gpus::Slab> slab = agent_->MakeSlab(slab_bytes, scrub);
    if (!slab.ok()) return slab.status();
    slabs_.push_back(*std::move(slab));
  }
  seconds_ = static_cast<double>(os::MonotonicNanoseconds() - begin) * 1e-9;
  return absl::OkStatus();
}

std::vector<memory::DeviceArena::Slab> GpuArena::slabs() const {
  std::vector<Slab> slabs;
  for (const gpus::Slab& slab : slabs_) slabs.push_back({&slab.fd, slab.bytes});
  return slabs;
}

void GpuArena::Revoke(base::UniqueFd holder, std::function<void(absl::Status)> done) {
  agent_->Release(std::exchange(slabs_, {}), std::move(holder),
                  [done = std::move(done)] { done(absl::OkStatus()); });
}

}  // namespace geminid::gpus
