// Places within one arena: which bytes are an extent, which are free, which are reserved at the
// top.
//
//   0                                     limit                 size
//   +--------+------+--------+------------+---------------------+
//   | extent | hole | extent | hole       | workspace (ReserveTop)|
//   +--------+------+--------+------------+---------------------+
#ifndef GEMINID_DAEMON_CORE_CHUNKS_EXTENT_ALLOCATOR_H_
#define GEMINID_DAEMON_CORE_CHUNKS_EXTENT_ALLOCATOR_H_

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/core/basics/ids.h"

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

  // Allocates at the lowest offset that fits (linear in the number of holes), or exactly at
  // `offset`. RESOURCE_EXHAUSTED: no such hole. INVALID_ARGUMENT: zero bytes, an offset that is not
  // a multiple of the alignment, or a range outside the arena.
  absl::StatusOr<uint64_t> AllocateLowest(uint64_t bytes, ChunkId owner);
  absl::Status AllocateAt(uint64_t offset, uint64_t bytes, ChunkId owner);
  // NOT_FOUND when no extent begins there.
  absl::Status Free(uint64_t offset);

  // Reserves the top `bytes` (rounded up), where no extent may lie from now on. RESOURCE_EXHAUSTED,
  // and nothing changes, if an extent is in the way. The reservation may shrink at any time.
  absl::Status ReserveTop(uint64_t bytes);

  uint64_t size_bytes() const { return size_bytes_; }
  uint64_t limit_bytes() const { return limit_bytes_; }  // extents end here at the latest
  uint64_t top_bytes() const { return size_bytes_ - limit_bytes_; }
  uint64_t used_bytes() const { return used_bytes_; }
  uint64_t free_bytes() const { return limit_bytes_ - used_bytes_; }
  uint64_t largest_hole_bytes() const { return sizes_.empty() ? 0 : *sizes_.rbegin(); }
  // The fraction of the free bytes outside the largest hole: 0 if the free bytes are one hole, near
  // 1 if they are scattered.
  double Fragmentation() const;
  uint64_t RoundUp(uint64_t bytes) const;  // saturates at the largest multiple

  // Extents that touch [begin, end), in order; at most `limit`.
  std::vector<Extent> InRange(uint64_t begin, uint64_t end, size_t limit = ~size_t{0}) const;
  std::vector<Extent> Extents() const { return InRange(0, size_bytes_); }

  // The extent that begins at `offset`; null: none does.
  const Extent* Find(uint64_t offset) const;

  // Finds the extents to evict so that `bytes` fit contiguously. The caller adds candidates, the
  // first to evict first, until a hole is large enough. The victims are the candidates in the first
  // `bytes` of that hole. Cost: logarithmic for each candidate.
  class VictimSearch {
   public:
    // `arena` must not change meanwhile.
    VictimSearch(const ExtentAllocator* arena, uint64_t bytes);
    // True: a hole is large enough now. `extent` must be one of the arena's.
    bool Add(const Extent& extent);
    // To be called after Add has returned true.
    std::vector<Extent> Victims() const;

   private:
    const ExtentAllocator* arena_;
    const uint64_t bytes_;                 // rounded up
    std::map<uint64_t, uint64_t> joined_;  // adjacent holes and candidates: offset to end
    std::vector<Extent> candidates_;
    uint64_t begin_ = 0;  // of the hole that is large enough
  };

 private:
  using Holes = std::map<uint64_t, uint64_t>;  // offset to end
  Holes::iterator AddHole(uint64_t begin, uint64_t end);
  void AddSize(const Holes::value_type& hole) { sizes_.insert(hole.second - hole.first); }
  void RemoveSize(const Holes::value_type& hole) {
    sizes_.extract(hole.second - hole.first);  // one of those that are equal
  }

  uint64_t alignment_bytes_;
  uint64_t size_bytes_;
  uint64_t limit_bytes_;
  uint64_t used_bytes_ = 0;
  std::map<uint64_t, Extent> extents_;  // by offset
  Holes holes_;                         // below the limit, coalesced
  std::multiset<uint64_t> sizes_;       // of the holes
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_CHUNKS_EXTENT_ALLOCATOR_H_
