// The parts of an arena that slabs cover, and the checks that all devices share.
#ifndef GEMINID_CLIENT_DEVICE_SLAB_RANGES_H_
#define GEMINID_CLIENT_DEVICE_SLAB_RANGES_H_

#include <cstdint>
#include <map>

#include "absl/status/status.h"

namespace geminid::device {

// By offset: bytes. Without overlaps.
using SlabRanges = std::map<uint64_t, uint64_t>;

// OK if an arena on a device with pages of `page_bytes` may have so many bytes.
absl::Status CheckArena(uint64_t bytes, uint64_t page_bytes);

// OK if a slab may lie there, in an arena of `arena_bytes` that has these slabs.
absl::Status CheckSlab(const SlabRanges& slabs, uint64_t arena_bytes, uint64_t page_bytes,
                       uint64_t offset, uint64_t bytes);

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_SLAB_RANGES_H_
