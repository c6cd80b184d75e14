#include "daemon/memory/device_arena.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace geminid::memory {

uint64_t SlabBytes(uint64_t bytes) {
  constexpr uint64_t kAllUnits = kMaxSlabs * kSlabUnitBytes;
  const uint64_t units = bytes / kAllUnits + (bytes % kAllUnits != 0 ? 1 : 0);
  return std::max<uint64_t>(units, 1) * kSlabUnitBytes;
}

std::vector<uint64_t> SlabSizes(uint64_t bytes, uint64_t slab_bytes) {
  std::vector<uint64_t> sizes;
  for (uint64_t left = bytes; left > 0; left -= sizes.back()) {
    sizes.push_back(std::min(left, slab_bytes));
  }
  return sizes;
}

absl::StatusOr<DeviceArena> DeviceArena::Create(const PoolOptions& options,
                                                const os::Machine& machine) {
  DeviceArena arena;
  for (const uint64_t slab_bytes : SlabSizes(options.bytes, SlabBytes(options.bytes))) {
    PoolOptions of_slab = options;
    of_slab.name = absl::StrCat(options.name, "-slab", arena.slabs_.size());
    of_slab.bytes = slab_bytes;
    absl::StatusOr<HostPool> slab = HostPool::Create(of_slab, machine);
    if (!slab.ok()) return slab.status();
    arena.slabs_.push_back(*std::move(slab));
  }
  arena.bytes_ = options.bytes;
  return arena;
}

absl::Status DeviceArena::Revoke() const {
  absl::Status status;
  for (const HostPool& slab : slabs_) status.Update(slab.Revoke());
  return status;
}

}  // namespace geminid::memory
