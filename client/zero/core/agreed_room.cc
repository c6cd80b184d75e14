#include "client/zero/core/agreed_room.h"

#include <algorithm>
#include <tuple>

namespace geminid::zero {
namespace {

using Extents = std::vector<AgreedExtent>;

Extents ExtentsOf(const std::vector<AgreedChunk>& chunks) {
  Extents extents;
  for (const AgreedChunk& chunk : chunks) extents.push_back(chunk.extent);
  return extents;
}

bool IsFree(const AgreedExtent& extent, const Extents& taken) {
  return std::ranges::none_of(taken, [&](const AgreedExtent& t) { return t.Overlaps(extent); });
}

std::optional<uint64_t> LowestHole(const AgreedExtent& room, uint64_t bytes, Extents taken) {
  std::ranges::sort(taken, {}, &AgreedExtent::begin);
  uint64_t hole = room.begin;
  for (const AgreedExtent& extent : taken) {
    if (extent.begin >= hole && extent.begin - hole >= bytes) break;
    hole = std::max(hole, extent.end);
  }
  if (hole > room.end || room.end - hole < bytes) return std::nullopt;
  return hole;
}

bool LeavesFirst(const AgreedChunk& a, const AgreedChunk& b) {
  return std::tuple(b.next_use, a.last_use, a.chunk) < std::tuple(a.next_use, b.last_use, b.chunk);
}

std::vector<uint32_t> Overlapped(const AgreedExtent& extent, std::vector<AgreedChunk> chunks) {
  std::ranges::sort(chunks, {}, [](const AgreedChunk& chunk) { return chunk.extent.begin; });
  std::vector<uint32_t> overlapped;
  for (const AgreedChunk& chunk : chunks) {
    if (chunk.extent.Overlaps(extent)) overlapped.push_back(chunk.chunk);
  }
  return overlapped;
}

std::optional<uint64_t> FreePlace(const AgreedExtent& room, const PlaceRequest& request,
                                  const Extents& taken) {
  for (const uint64_t offset : request.preferred) {
    const AgreedExtent extent = {offset, offset + request.bytes};
    if (room.Contains(extent) && IsFree(extent, taken)) return offset;
  }
  Extents avoided = taken;
  avoided.insert(avoided.end(), request.avoided.begin(), request.avoided.end());
  const auto lasting = LowestHole(room, request.bytes, std::move(avoided));
  return lasting.has_value() ? lasting : LowestHole(room, request.bytes, taken);
}

}  // namespace

std::optional<AgreedPlace> FindAgreedPlace(const AgreedExtent& room, const PlaceRequest& request,
                                           const std::vector<AgreedChunk>& chunks) {
  if (const auto free = FreePlace(room, request, ExtentsOf(chunks))) return AgreedPlace{*free, {}};
  std::vector<AgreedChunk> fixed;
  std::vector<AgreedChunk> leaving;
  for (const AgreedChunk& chunk : chunks) (chunk.may_leave ? leaving : fixed).push_back(chunk);
  std::ranges::sort(leaving, LeavesFirst);
  Extents taken = ExtentsOf(fixed);
  for (size_t gone = 1; gone <= leaving.size(); ++gone) {
    Extents rest = taken;
    for (size_t i = gone; i < leaving.size(); ++i) rest.push_back(leaving[i].extent);
    const auto hole = LowestHole(room, request.bytes, std::move(rest));
    if (!hole.has_value()) continue;
    leaving.resize(gone);
    return AgreedPlace{*hole, Overlapped({*hole, *hole + request.bytes}, std::move(leaving))};
  }
  return std::nullopt;
}

}  // namespace geminid::zero
