#include "client/zero/core/arena_map.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace geminid::zero {

void ArenaMap::Remove(uint32_t owner) {
  std::erase_if(extents_, [owner](const auto& extent) { return extent.second.owner == owner; });
}

uint64_t ArenaMap::used_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [offset, extent] : extents_) bytes += extent.bytes;
  return bytes;
}

std::optional<ArenaMap::Room> ArenaMap::RoomAt(uint64_t offset, uint64_t bytes,
                                               const Movable& movable) const {
  if (offset < floor_bytes_ || offset > limit_bytes_ || bytes > limit_bytes_ - offset) {
    return std::nullopt;
  }
  Room room{offset, {}};
  auto at = extents_.upper_bound(offset);
  if (at != extents_.begin()) --at;
  for (; at != extents_.end() && at->first < offset + bytes; ++at) {
    if (at->first + at->second.bytes <= offset) continue;
    if (!movable(at->second.owner)) return std::nullopt;
    room.evict.push_back(at->second.owner);
  }
  return room;
}

std::optional<ArenaMap::Room> ArenaMap::FindRoom(uint64_t bytes, std::optional<uint64_t> wanted,
                                                 const Movable& movable) const {
  const auto fixed = [](uint32_t) { return false; };
  if (wanted.has_value()) {
    if (std::optional<Room> room = RoomAt(*wanted, bytes, fixed)) return room;
  }
  uint64_t hole = floor_bytes_;
  for (const auto& [offset, extent] : extents_) {
    if (offset >= hole && offset - hole >= bytes && hole + bytes <= limit_bytes_) break;
    hole = std::max(hole, offset + extent.bytes);
  }
  if (std::optional<Room> room = RoomAt(hole, bytes, fixed)) return room;

  // A best place begins where an extent ends, or ends where an extent begins.
  std::vector<uint64_t> candidates = {floor_bytes_};
  if (limit_bytes_ >= bytes) candidates.push_back(limit_bytes_ - bytes);
  for (const auto& [offset, extent] : extents_) {
    candidates.push_back(offset);
    candidates.push_back(offset + extent.bytes);
    if (offset >= bytes) candidates.push_back(offset - bytes);
  }
  std::sort(candidates.begin(), candidates.end());
  std::optional<Room> best;
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (uint64_t candidate : candidates) {
    std::optional<Room> room = RoomAt(candidate, bytes, movable);
    if (!room.has_value()) continue;
    uint64_t cost = 0;
    for (const auto& [offset, extent] : extents_) {
      if (std::ranges::find(room->evict, extent.owner) != room->evict.end()) cost += extent.bytes;
    }
    if (cost < least) {
      least = cost;
      best = std::move(room);
    }
  }
  return best;
}

std::optional<std::vector<uint32_t>> ArenaMap::InTheWay(uint64_t bytes,
                                                        const Movable& movable) const {
  if (bytes > size_bytes_ || size_bytes_ - bytes < floor_bytes_) return std::nullopt;
  std::vector<uint32_t> owners;
  for (const auto& [offset, extent] : extents_) {
    if (offset + extent.bytes <= size_bytes_ - bytes) continue;
    if (!movable(extent.owner)) return std::nullopt;
    owners.push_back(extent.owner);
  }
  return owners;
}

uint64_t ArenaMap::MostWorkspace() const {
  uint64_t end = floor_bytes_;
  for (const auto& [offset, extent] : extents_) end = std::max(end, offset + extent.bytes);
  return size_bytes_ - end;
}

}  // namespace geminid::zero
