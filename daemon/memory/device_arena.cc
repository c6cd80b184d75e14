#include "daemon/memory/device_arena.h"

#include <algorithm>

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

}  // namespace geminid::memory
