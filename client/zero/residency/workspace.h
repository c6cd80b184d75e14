// The part of the arena that is not model data: blocks below its top, tracked to the byte.
#ifndef GEMINID_CLIENT_ZERO_RESIDENCY_WORKSPACE_H_
#define GEMINID_CLIENT_ZERO_RESIDENCY_WORKSPACE_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/zero/basics/arena_meter.h"
#include "geminid/zero.h"

namespace geminid::zero {

// Thread-safe. A block lies at the highest place that fits, which is found by walking the blocks in
// use: trainers hold tens of blocks, not thousands.
class ArenaWorkspace final : public Workspace {
 public:
  // Called without locks when blocks are about to reach below the reservation. Reserves the top
  // `extent_bytes` of the arena and calls SetReserved, or returns why it cannot.
  using Grow = std::function<absl::Status(uint64_t extent_bytes)>;

  // For blocks that the reservation cannot grow for: elsewhere in the arena.
  struct Holes {
    std::function<absl::StatusOr<std::byte*>(uint64_t bytes)> allocate;
    std::function<void(std::byte* data)> free;
    // Called for blocks too large even for an empty arena; may be empty.
    std::function<void(const absl::Status& why)> refused;
  };

  ArenaWorkspace(std::byte* arena, uint64_t arena_bytes, ArenaMeter* meter, Grow grow,
                 Holes holes = {});

  absl::StatusOr<Block> Allocate(uint64_t bytes) override;

  // Until SetReserved, no block reaches below the blocks in use: callers that need more wait in
  // `grow`. Returns extent_bytes(). The owner of the reservation calls it before it decides where
  // chunks may lie, since other threads take blocks meanwhile.
  uint64_t Pause();
  // The owner of the reservation says how much is reserved now.
  void SetReserved(uint64_t extent_bytes);

  // From the lowest byte in use to the top, without blocks in holes; or the reported extent.
  uint64_t extent_bytes() const;
  uint64_t in_use_bytes() const;
  // The largest extent since the last call, with the blocks in holes added to it.
  uint64_t TakePeakExtent();
  // For a framework with an allocator of its own: counts as an extent of `bytes` until the next
  // call of TakePeakExtent.
  absl::Status Report(uint64_t bytes);

 protected:
  void Free(std::byte* data, uint64_t bytes) override;

 private:
  uint64_t PlaceLocked(uint64_t bytes) const;
  uint64_t ExtentLocked() const;
  absl::StatusOr<Block> AllocateInHole(uint64_t bytes, const absl::Status& why);
  void NotePeakLocked(uint64_t extent) {
    peak_extent_ = std::max(peak_extent_, extent + hole_bytes_);
  }

  std::byte* const arena_;
  const uint64_t arena_bytes_;
  ArenaMeter* const meter_;
  const Grow grow_;
  const Holes holes_;
  mutable std::mutex mutex_;
  std::map<uint64_t, uint64_t, std::greater<>> blocks_;  // offset to bytes, highest first
  std::set<std::byte*> in_holes_;
  uint64_t hole_bytes_ = 0;
  uint64_t reserved_bytes_ = 0;
  uint64_t reported_bytes_ = 0;  // since TakePeakExtent
  uint64_t in_use_bytes_ = 0;
  uint64_t peak_extent_ = 0;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_RESIDENCY_WORKSPACE_H_
