#include "daemon/memory/device_arena.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace geminid::memory {

std::vector<uint64_t> SlabSizes(uint64_t bytes, uint64_t max_slab_bytes) {
  std::vector<uint64_t> sizes;
  for (uint64_t left = bytes; left > 0; left -= sizes.back()) {
    sizes.push_back(std::min(left, max_slab_bytes));
  }
  return sizes;
}

absl::StatusOr<DeviceArena> DeviceArena::Create(const std::string& name, uint64_t bytes,
                                                const os::Machine& machine,
                                                const std::atomic<bool>* cancelled) {
  DeviceArena arena;
  for (const uint64_t slab_bytes : SlabSizes(bytes)) {
    PoolOptions options;
    options.name = absl::StrCat(name, "-slab", arena.slabs_.size());
    options.bytes = slab_bytes;
    options.cancelled = cancelled;
    absl::StatusOr<HostPool> slab = HostPool::Create(options, machine);
    if (!slab.ok()) return slab.status();
    arena.slabs_.push_back(*std::move(slab));
  }
  arena.bytes_ = bytes;
  return arena;
}

}  // namespace geminid::memory
