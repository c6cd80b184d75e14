// Where this rank's chunks and workspace are to lie in its arena, in the order of the program.
// Pure.
//
//   0        floor                                        limit                 size
//   | state  | chunk | hole | chunk | block | hole        | workspace           |
//
// A place is free as soon as its chunk has been given up; whoever fills it waits until the bytes
// have really left. Workspace grows down from the top; a block that finds something there which
// cannot move lies in a hole instead.
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
  // A place, and the chunks that must leave it first.
  struct Room {
    uint64_t offset = 0;
    std::vector<uint32_t> evict;
  };
  using Movable = std::function<bool(uint32_t owner)>;

  // Both in whole extents. Owners are chunks and blocks, numbered by the caller.
  ArenaMap(uint64_t size_bytes, uint64_t floor_bytes)
      : size_bytes_(size_bytes), floor_bytes_(floor_bytes), limit_bytes_(size_bytes) {}

  // The state has grown; nothing may lie below it.
  void SetFloor(uint64_t floor_bytes) { floor_bytes_ = floor_bytes; }
  uint64_t floor_bytes() const { return floor_bytes_; }

  // At `wanted` if that is free, else in the lowest hole that is large enough, else where the
  // fewest bytes must leave. Nothing if no place can be made. O(n^2) in what lies there, O(n) if
  // free.
  std::optional<Room> FindRoom(uint64_t bytes, std::optional<uint64_t> wanted,
                               const Movable& movable) const;

  // Just there. Nothing if that is not within what chunks may have, or something cannot leave it.
  std::optional<Room> RoomAt(uint64_t offset, uint64_t bytes, const Movable& movable) const;

  void Put(uint32_t owner, uint64_t offset, uint64_t bytes) { extents_[offset] = {owner, bytes}; }
  void Remove(uint32_t owner);

  // What must leave so that the top `bytes` can be workspace. Nothing if something there cannot.
  std::optional<std::vector<uint32_t>> InTheWay(uint64_t bytes, const Movable& movable) const;
  // The most that the top can be without anything leaving.
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
