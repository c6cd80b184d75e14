// Places this rank's chunks and workspace in its arena, in the order in which the program asks for
// them. Pure.
//
//   0        floor                                        limit                 size
//   | state  | chunk | hole | chunk | block | hole        | workspace           |
//
// A place is free as soon as its chunk was given up; the next user of the place waits until the
// bytes have really left. Workspace grows down from the top. If something that cannot move is in
// its way, a block of workspace lies in a hole instead.
#ifndef GEMINID_CLIENT_ZERO_CORE_ARENA_MAP_H_
#define GEMINID_CLIENT_ZERO_CORE_ARENA_MAP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

namespace geminid::zero {

class ArenaMap {
 public:
  // A place, and the chunks that must be evicted from it first.
  struct Room {
    uint64_t offset = 0;
    std::vector<uint32_t> evict;
  };
  using Movable = std::function<bool(uint32_t owner)>;

  // Both sizes are in whole extents. Owners are chunks and blocks, numbered by the caller.
  ArenaMap(uint64_t size_bytes, uint64_t floor_bytes)
      : size_bytes_(size_bytes), floor_bytes_(floor_bytes), limit_bytes_(size_bytes) {}

  // Called when the optimizer's state has grown; nothing may lie below the new floor.
  void SetFloor(uint64_t floor_bytes) { floor_bytes_ = floor_bytes; }
  uint64_t floor_bytes() const { return floor_bytes_; }

  // At `wanted` if that is free, else in the lowest hole that is large enough, else where the
  // fewest bytes must be evicted. nullopt if no place can be made. O(n^2) in the number of extents;
  // O(n) if a hole is large enough.
  std::optional<Room> FindRoom(uint64_t bytes, std::optional<uint64_t> wanted,
                               const Movable& movable) const;

  // Exactly at `offset`. nullopt if that is outside the chunks' range, or an owner there is fixed.
  std::optional<Room> RoomAt(uint64_t offset, uint64_t bytes, const Movable& movable) const;

  void Put(uint32_t owner, uint64_t offset, uint64_t bytes) { extents_[offset] = {owner, bytes}; }
  void Remove(uint32_t owner);

  // The owners to evict to make the top `bytes` workspace. nullopt if any of them cannot move.
  std::optional<std::vector<uint32_t>> InTheWay(uint64_t bytes, const Movable& movable) const;
  // The largest workspace that needs no eviction.
  uint64_t MostWorkspace() const;
  void SetWorkspace(uint64_t bytes) { limit_bytes_ = size_bytes_ - bytes; }
  uint64_t workspace_bytes() const { return size_bytes_ - limit_bytes_; }
  uint64_t size_bytes() const { return size_bytes_; }
  uint64_t used_bytes() const;

 private:
  struct Extent {
    uint32_t owner = 0;
    uint64_t bytes = 0;
  };

  uint64_t size_bytes_;
  uint64_t floor_bytes_;
  uint64_t limit_bytes_;
  std::map<uint64_t, Extent> extents_;  // by offset
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_CORE_ARENA_MAP_H_
