#include "client/zero/core/placer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace geminid::zero {
namespace {

bool Nothing(uint32_t) { return false; }

}  // namespace

Placer::Placer(uint64_t arena_bytes, uint64_t alignment_bytes, std::vector<uint64_t> chunk_bytes,
               Regathers regathers)
    : alignment_bytes_(alignment_bytes),
      bytes_(std::move(chunk_bytes)),
      regathers_(std::move(regathers)),
      map_(arena_bytes / alignment_bytes * alignment_bytes, 0),
      where_(bytes_.size(), Where::kAway),
      offsets_(bytes_.size()) {}

absl::Status Placer::NoRoom(uint64_t bytes) const {
  return absl::ResourceExhaustedError(
      absl::StrCat("no room for ", bytes, " bytes: ", map_.used_bytes(),
                   " bytes of chunks and blocks lie beside ", map_.workspace_bytes(),
                   " bytes of workspace in ", map_.size_bytes()));
}

// The map without chunks that are neither held nor among `chunks`.
ArenaMap Placer::MapOf(std::span<const uint32_t> chunks, const IsHeld& held) const {
  ArenaMap map = map_;
  for (uint32_t chunk = 0; chunk < bytes_.size(); ++chunk) {
    if (!held(chunk) && std::ranges::find(chunks, chunk) == chunks.end()) map.Remove(chunk);
  }
  return map;
}

uint64_t Placer::MostWorkspaceUnpacked(std::span<const uint32_t> chunks, const IsHeld& held) const {
  ArenaMap all = map_;
  ArenaMap map = MapOf(chunks, held);
  for (uint32_t chunk : chunks) {
    if (where_[chunk] == Where::kDevice) continue;
    const auto room = all.FindRoom(bytes_[chunk], std::nullopt, Nothing);
    if (!room.has_value()) return 0;  // something must be evicted in any case
    all.Put(chunk, room->offset, bytes_[chunk]);
    map.Put(chunk, room->offset, bytes_[chunk]);
  }
  return map.MostWorkspace();
}

// In the order in which Place and Load find room: first the chunks that can stay, then those to
// gather, then those to bring from the host.
std::optional<Placer::Packed> Placer::Pack(std::span<const uint32_t> chunks,
                                           const IsHeld& held) const {
  Packed packed;
  ArenaMap map = MapOf({}, held);
  const auto put = [&](uint32_t chunk) {
    const auto room = map.FindRoom(bytes_[chunk], std::nullopt, Nothing);
    if (!room.has_value()) return false;
    map.Put(chunk, room->offset, bytes_[chunk]);
    packed.offsets[chunk] = room->offset;
    return true;
  };
  std::vector<uint32_t> waiting;
  std::map<uint64_t, uint32_t> there;  // by offset
  for (uint32_t chunk : chunks) {
    if (where_[chunk] == Where::kAway) waiting.push_back(chunk);
    if (where_[chunk] == Where::kDevice && !held(chunk)) there[offsets_[chunk]] = chunk;
  }
  for (const auto& [offset, chunk] : there) {
    const auto room = map.FindRoom(bytes_[chunk], std::nullopt, Nothing);
    if (!room.has_value() || room->offset != offset) break;
    put(chunk);
  }
  for (uint32_t chunk : chunks) {
    const bool is_held = where_[chunk] == Where::kDevice && held(chunk);
    const bool stays = is_held || packed.offsets.contains(chunk);
    if (where_[chunk] != Where::kAway && !stays) waiting.push_back(chunk);
  }
  if (!std::ranges::all_of(waiting, put)) return std::nullopt;
  packed.most_workspace_bytes = map.MostWorkspace();
  return packed;
}

std::optional<std::map<uint32_t, uint64_t>> Placer::PackAll(std::span<const uint32_t> chunks,
                                                            uint64_t workspace_bytes,
                                                            const IsHeld& held) const {
  ArenaMap map = MapOf({}, held);
  map.SetWorkspace(workspace_bytes);
  std::vector<uint32_t> order;
  for (uint32_t chunk : chunks) {
    if (where_[chunk] != Where::kDevice || !held(chunk)) order.push_back(chunk);
  }
  std::ranges::sort(order, [&](uint32_t a, uint32_t b) {
    return bytes_[a] != bytes_[b] ? bytes_[a] > bytes_[b] : a < b;
  });
  std::map<uint32_t, uint64_t> offsets;
  for (uint32_t chunk : order) {
    const auto room = map.FindRoom(bytes_[chunk], std::nullopt, Nothing);
    if (!room.has_value()) return std::nullopt;
    map.Put(chunk, room->offset, bytes_[chunk]);
    offsets[chunk] = room->offset;
  }
  return offsets;
}

bool Placer::Fits(std::span<const uint32_t> chunks, uint64_t workspace_bytes,
                  const IsHeld& held) const {
  const bool all_there =
      std::ranges::all_of(chunks, [this](uint32_t chunk) { return OnDevice(chunk); });
  return all_there || PackAll(chunks, RoundUp(workspace_bytes), held).has_value();
}

std::vector<uint32_t> Placer::Displaced(const std::map<uint32_t, uint64_t>& offsets) const {
  std::vector<uint32_t> displaced;
  for (const auto& [chunk, offset] : offsets) {
    if (OnDevice(chunk) && offsets_[chunk] != offset) displaced.push_back(chunk);
  }
  for (const auto& [chunk, offset] : offsets) {
    const auto room = map_.RoomAt(offset, bytes_[chunk], [](uint32_t) { return true; });
    for (uint32_t other : room->evict) {
      const bool listed = std::ranges::find(displaced, other) != displaced.end();
      if (other != chunk && !listed) displaced.push_back(other);
    }
  }
  return displaced;
}

Steps Placer::MakeWay(std::span<const uint32_t> chunks, uint64_t enough_bytes, const IsHeld& held,
                      const Stores& stores) {
  const uint64_t unpacked_bytes = MostWorkspaceUnpacked(chunks, held);
  if (unpacked_bytes >= enough_bytes) return {};
  const std::optional<Packed> packed = Pack(chunks, held);
  if (!packed.has_value() || packed->most_workspace_bytes <= unpacked_bytes) return {};
  const std::vector<uint32_t> displaced = Displaced(packed->offsets);
  std::vector<uint32_t> stored = displaced;
  std::erase_if(stored, [this](uint32_t chunk) { return MayRegather(chunk); });
  if (!stored.empty() && !stores(stored)) return {};
  Steps steps;
  for (uint32_t chunk : displaced) Evict(chunk, &steps);
  return steps;
}

Steps Placer::Place(const Moves& moves) {
  Steps steps;
  for (const Move& move : moves) {
    Where& where = where_[move.chunk];
    if (move.kind == Move::Kind::kDrop || move.kind == Move::Kind::kReduce) {
      if (move.kind == Move::Kind::kReduce) {
        steps.push_back({Step::Kind::kReduce, move.chunk});
      } else if (where == Where::kDevice) {
        steps.push_back({Step::Kind::kDrop, move.chunk});
      } else if (where == Where::kHost) {
        steps.push_back({Step::Kind::kForget, move.chunk});
      }
      map_.Remove(move.chunk);
      where = Where::kAway;
      continue;
    }
    if (move.kind == Move::Kind::kPark) {
      if (where == Where::kDevice) Evict(move.chunk, &steps);
      continue;
    }
    if (move.kind == Move::Kind::kReturn) {
      if (where != Where::kDevice) Return(move, &steps);
      continue;
    }
    const bool opens = move.kind == Move::Kind::kOpen;
    if (const auto room = map_.FindRoom(bytes_[move.chunk], move.offset, Nothing)) {
      PutAt(move.chunk, room->offset);
      steps.push_back({opens ? Step::Kind::kOpen : Step::Kind::kGather, move.chunk, room->offset,
                       move.due, move.within_host});
    } else if (opens) {
      where = Where::kUnopened;  // an extent of zeros can be opened later
    } else if (MayRegather(move.chunk)) {
      where = Where::kUngathered;
    } else {
      where = Where::kHost;
      steps.push_back({Step::Kind::kGatherToHost, move.chunk, 0, move.due, move.within_host});
    }
  }
  return steps;
}

void Placer::PutAt(uint32_t chunk, uint64_t offset) {
  map_.Put(chunk, offset, bytes_[chunk]);
  where_[chunk] = Where::kDevice;
  offsets_[chunk] = offset;
}

void Placer::Evict(uint32_t chunk, Steps* steps) {
  map_.Remove(chunk);
  where_[chunk] = MayRegather(chunk) ? Where::kUngathered : Where::kHost;
  const bool drops = where_[chunk] == Where::kUngathered;
  steps->push_back({drops ? Step::Kind::kDrop : Step::Kind::kToHost, chunk});
}

Step::Kind Placer::KindOfLoad(uint32_t chunk) const {
  switch (where_[chunk]) {
    case Where::kUnopened:
      return Step::Kind::kOpen;
    case Where::kUngathered:
      return Step::Kind::kGather;
    default:
      return Step::Kind::kToDevice;
  }
}

// If there is no room for the chunk, it waits until an operator needs it.
void Placer::Return(const Move& move, Steps* steps) {
  const auto room = map_.FindRoom(bytes_[move.chunk], move.offset, Nothing);
  if (!room.has_value()) return;
  steps->push_back({KindOfLoad(move.chunk), move.chunk, room->offset, move.due});
  PutAt(move.chunk, room->offset);
}

void Placer::LoadTo(uint32_t chunk, const ArenaMap::Room& room, Steps* steps) {
  for (uint32_t other : room.evict) Evict(other, steps);
  steps->push_back({KindOfLoad(chunk), chunk, room.offset});
  PutAt(chunk, room.offset);
}

bool Placer::LoadOne(uint32_t chunk, const ArenaMap::Movable& movable, Steps* steps) {
  const auto room = map_.FindRoom(bytes_[chunk], std::nullopt, movable);
  if (room.has_value()) LoadTo(chunk, *room, steps);
  return room.has_value();
}

bool Placer::LoadAll(std::span<const uint32_t> chunks, const IsHeld& held, Steps* steps) {
  const ArenaMap::Movable movable = [&](uint32_t owner) {
    return owner < bytes_.size() && !held(owner) &&
           std::ranges::find(chunks, owner) == chunks.end();
  };
  return std::ranges::all_of(chunks, [&](uint32_t chunk) {
    return where_[chunk] == Where::kDevice || LoadOne(chunk, movable, steps);
  });
}

absl::StatusOr<Steps> Placer::Load(std::span<const uint32_t> chunks, const IsHeld& held) {
  Steps steps;
  if (LoadAll(chunks, held, &steps)) return steps;
  // Retry with the workspace that is only wanted, then with the gaps between the chunks themselves.
  if (needed_workspace_bytes_ < map_.workspace_bytes()) {
    SetWorkspace(needed_workspace_bytes_, &steps);
    if (LoadAll(chunks, held, &steps)) return steps;
  }
  const auto packed = PackAll(chunks, map_.workspace_bytes(), held);
  if (!packed.has_value()) {
    uint64_t bytes = 0;
    for (uint32_t chunk : chunks) bytes += bytes_[chunk];
    return NoRoom(bytes);
  }
  for (const auto& [chunk, offset] : *packed) {
    if (OnDevice(chunk) && offsets_[chunk] != offset) Evict(chunk, &steps);
  }
  for (const auto& [chunk, offset] : *packed) {
    if (where_[chunk] == Where::kDevice) continue;
    LoadTo(chunk, *map_.RoomAt(offset, bytes_[chunk], [](uint32_t) { return true; }), &steps);
  }
  return steps;
}

absl::StatusOr<Steps> Placer::Reserve(uint64_t bytes, uint64_t wanted, const IsHeld& held) {
  Steps steps;
  const uint64_t needed = RoundUp(bytes);
  const uint64_t most = map_.MostWorkspace();
  const uint64_t target = std::max(needed, std::min(RoundUp(wanted), most));
  if (needed > most) {
    const auto in_the_way = map_.InTheWay(
        needed, [&](uint32_t owner) { return owner < bytes_.size() && !held(owner); });
    if (!in_the_way.has_value()) return NoRoom(needed);
    for (uint32_t chunk : *in_the_way) Evict(chunk, &steps);
  }
  needed_workspace_bytes_ = needed;
  if (target == map_.workspace_bytes()) return steps;
  SetWorkspace(target, &steps);
  return steps;
}

void Placer::SetWorkspace(uint64_t bytes, Steps* steps) {
  steps->push_back({.kind = Step::Kind::kReserve, .offset = bytes, .before = reserved_bytes()});
  map_.SetWorkspace(bytes);
}

absl::StatusOr<Placer::Block> Placer::PlaceBlock(uint32_t block, uint64_t bytes,
                                                 const IsHeld& held) {
  const auto room = map_.FindRoom(RoundUp(bytes), std::nullopt, [&](uint32_t owner) {
    return owner < bytes_.size() && !held(owner);
  });
  if (!room.has_value()) return NoRoom(bytes);
  Block placed{room->offset, {}};
  for (uint32_t other : room->evict) Evict(other, &placed.steps);
  map_.Put(OwnerOf(block), room->offset, RoundUp(bytes));
  return placed;
}

}  // namespace geminid::zero
