// How large things may be: the one place that the daemon, its clients, the planner and the tools
// take these numbers from.
#ifndef GEMINID_PROTO_SHM_LIMITS_H_
#define GEMINID_PROTO_SHM_LIMITS_H_

#include <cstdint>

namespace geminid::shm {

// Device extents begin at multiples of this, a slot.
inline constexpr uint64_t kSlotBytes = 4096;
// Of a slot's number, in the words of a chunk.
inline constexpr int kSlotBits = 32;
// What the slot numbers reach: 16 TiB. No device is larger, as far as an arena is concerned.
inline constexpr uint64_t kMaxArenaBytes = kSlotBytes << kSlotBits;
inline constexpr uint64_t kMaxChunkBytes = uint64_t{1} << 40;
// Of one session.
inline constexpr uint32_t kMaxChunks = 65536;

}  // namespace geminid::shm

#endif  // GEMINID_PROTO_SHM_LIMITS_H_
