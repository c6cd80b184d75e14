// The part of the arena in which all ranks expect idle chunks to lie: where a chunk is asked for,
// and which idle chunks are evicted for it. Ranks decide alike because nothing of one rank's
// workspace enters. A rank that has no room at the agreed place finds another one (Placer). Pure.
#ifndef GEMINID_CLIENT_ZERO_CORE_AGREED_ROOM_H_
#define GEMINID_CLIENT_ZERO_CORE_AGREED_ROOM_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace geminid::zero {

// Bytes [begin, end) of the arena.
struct AgreedExtent {
  uint64_t begin = 0;
  uint64_t end = 0;

  bool empty() const { return begin == end; }
  bool Overlaps(const AgreedExtent& other) const { return begin < other.end && other.begin < end; }
  bool Contains(const AgreedExtent& other) const {
    return begin <= other.begin && other.end <= end;
  }
  friend bool operator==(const AgreedExtent&, const AgreedExtent&) = default;
};

// A chunk on the device, at the place that all ranks agreed on.
struct AgreedChunk {
  static constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();

  uint32_t chunk = 0;
  AgreedExtent extent;
  bool may_leave = false;
  uint64_t next_use = kUnknown;  // how many moments ahead, by the plan in force
  uint64_t last_use = 0;         // larger is later
};

struct PlaceRequest {
  uint64_t bytes = 0;
  std::vector<uint64_t> preferred;    // offsets, the best first
  std::vector<AgreedExtent> avoided;  // that plans will fill; they are free now
};

struct AgreedPlace {
  uint64_t offset = 0;
  std::vector<uint32_t> evicted;  // ascending by offset
};

// The place for one more chunk in `room`. Nothing is evicted while there is a hole for it. Then the
// chunk with the farthest next use is evicted first; of those without a known one, which count as
// farthest, the least recently used. Nothing: what may not leave is in the way.
// O(n^2 log n) in the chunks.
std::optional<AgreedPlace> FindAgreedPlace(const AgreedExtent& room, const PlaceRequest& request,
                                           const std::vector<AgreedChunk>& chunks);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_CORE_AGREED_ROOM_H_
