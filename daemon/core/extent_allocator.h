// Places within one arena: which bytes are an extent, which are free, which are reserved at the
// top.
//
//   0                                     limit                 size
//   +--------+------+--------+------------+---------------------+
//   | extent | hole | extent | hole       | workspace (ReserveTop)|
//   +--------+------+--------+------------+---------------------+
#ifndef GEMINID_DAEMON_CORE_EXTENT_ALLOCATOR_H_
#define GEMINID_DAEMON_CORE_EXTENT_ALLOCATOR_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/core/ids.h"

namespace geminid::core {

struct Extent {
  uint64_t offset = 0;
  uint64_t bytes = 0;  // rounded up to the alignment
  ChunkId owner = shm::kNoChunk;
  uint64_t end() const { return offset + bytes; }
};

// Extents begin at multiples of the alignment and occupy multiples of it. Not thread-safe. Cost:
// logarithmic in the number of extents, except where said.
class ExtentAllocator {
 public:
  // `size_bytes` is rounded down to a multiple of `alignment_bytes`, a power of two.
  ExtentAllocator(uint64_t size_bytes, uint64_t alignment_bytes);

  // At the lowest offset that fits (linear in the number of holes), or exactly at `offset`.
  // RESOURCE_EXHAUSTED: no such hole. INVALID_ARGUMENT: zero bytes, an offset that is not a
  // multiple of the alignment, or a range outside the arena.
  absl::StatusOr<uint64_t> AllocateLowest(uint64_t bytes, ChunkId owner);
  absl::Status AllocateAt(uint64_t offset, uint64_t bytes, ChunkId owner);
  // NOT_FOUND when no extent begins there.
  absl::Status Free(uint64_t offset);

  // The top `bytes` (rounded up) hold no extent from now on. RESOURCE_EXHAUSTED, and nothing
  // changed, when an extent is in the way; it may shrink at any time.
  absl::Status ReserveTop(uint64_t bytes);

  uint64_t size_bytes() const { return size_bytes_; }
  uint64_t limit_bytes() const { return limit_bytes_; }  // extents end here at the latest
  uint64_t top_bytes() const { return size_bytes_ - limit_bytes_; }
  uint64_t used_bytes() const { return used_bytes_; }
  uint64_t free_bytes() const { return limit_bytes_ - used_bytes_; }
  uint64_t largest_hole_bytes() const;  // linear in the number of holes
  // The part of the free bytes that the largest hole does not have: 0 whole, towards 1 in
  // splinters.
  double Fragmentation() const;
  uint64_t RoundUp(uint64_t bytes) const;  // saturates at the largest multiple

  // Extents that touch [begin, end), in order.
  std::vector<Extent> InRange(uint64_t begin, uint64_t end) const;
  std::vector<Extent> Extents() const { return InRange(0, size_bytes_); }

  // Which of `candidates` (extents of this arena, the first to go first) must leave so that `bytes`
  // fit in one piece; nothing when even all of them do not suffice. Takes from the front of the
  // list until a hole is large enough, then only those that lie in the hole's first `bytes`.
  std::optional<std::vector<Extent>> Victims(uint64_t bytes,
                                             const std::vector<Extent>& candidates) const;

 private:
  using Holes = std::map<uint64_t, uint64_t>;  // offset to end
  static Holes::iterator AddHole(Holes* holes, uint64_t begin, uint64_t end);

  uint64_t alignment_bytes_;
  uint64_t size_bytes_;
  uint64_t limit_bytes_;
  uint64_t used_bytes_ = 0;
  std::map<uint64_t, Extent> extents_;  // by offset
  Holes holes_;                         // below the limit, coalesced
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_EXTENT_ALLOCATOR_H_
