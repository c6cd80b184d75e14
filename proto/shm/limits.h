// The size limits. The daemon, its clients, the planner and the tools all take these numbers from
// here.
#ifndef GEMINID_PROTO_SHM_LIMITS_H_
#define GEMINID_PROTO_SHM_LIMITS_H_

#include <cstdint>

namespace geminid::shm {

// Extents on a device begin at multiples of this size. A slot is memory of this size.
inline constexpr uint64_t kSlotBytes = 4096;
// Bits of a slot's number, in the words of a chunk.
inline constexpr int kSlotBits = 32;
// 16 TiB, the limit of slot numbers. An arena uses no more of a larger device.
inline constexpr uint64_t kMaxArenaBytes = kSlotBytes << kSlotBits;
inline constexpr uint64_t kMaxChunkBytes = uint64_t{1} << 40;
// Most chunks of one session.
inline constexpr uint32_t kMaxChunks = 65536;

}  // namespace geminid::shm

#endif  // GEMINID_PROTO_SHM_LIMITS_H_
