// Which parts of an arena slabs fill: what ReserveArena and ImportSlab refuse on every device.
#ifndef GEMINID_CLIENT_DEVICE_SLAB_RANGES_H_
#define GEMINID_CLIENT_DEVICE_SLAB_RANGES_H_

#include <cstdint>
#include <map>

#include "absl/status/status.h"

namespace geminid::device {

// Offset to bytes, without overlaps.
using SlabRanges = std::map<uint64_t, uint64_t>;

// Whether an arena may have so many bytes on a device that maps pages of `page_bytes`.
absl::Status CheckArena(uint64_t bytes, uint64_t page_bytes);

// Whether a slab may lie there, in an arena of `arena_bytes` with these slabs.
absl::Status CheckSlab(const SlabRanges& slabs, uint64_t arena_bytes, uint64_t page_bytes,
                       uint64_t offset, uint64_t bytes);

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_SLAB_RANGES_H_
