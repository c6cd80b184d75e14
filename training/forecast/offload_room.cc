#include "training/forecast/offload_room.h"

#include <algorithm>

namespace geminid::forecast {

// The inputs lie in the items, so the workspace needs no room for the inputs.
std::uint64_t OffloadingBytes(const OffloadRoom& room, std::uint32_t places) {
  const std::uint64_t inputs = room.item_bytes.size() * room.input_bytes;
  const std::uint64_t workspace = room.workspace_bytes > inputs ? room.workspace_bytes - inputs : 0;
  return workspace + places * *std::ranges::max_element(room.item_bytes);
}

bool OffloadingFits(const OffloadRoom& room, std::uint32_t places) {
  return OffloadingBytes(room, places) + room.model_bytes <= room.arena_bytes;
}

std::uint32_t MostPlaces(const OffloadRoom& room) {
  const auto items = static_cast<std::uint32_t>(room.item_bytes.size());
  std::uint32_t places = std::min(kFewestPlaces, items);
  while (places < items && OffloadingFits(room, places + 1)) ++places;
  return places;
}

}  // namespace geminid::forecast
