// Chunks in the order in which their device copies should be evicted: farthest next use first, then
// the least recently used.
#ifndef GEMINID_DAEMON_CORE_CHUNKS_DEPARTURES_H_
#define GEMINID_DAEMON_CORE_CHUNKS_DEPARTURES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <tuple>

#include "daemon/core/basics/ids.h"

namespace geminid::core {

// Not thread-safe. Cost: logarithmic in the number of chunks.
//
// Places are not updated as time passes: a place may name a use that is already in the past. Such a
// chunk looks as if its next use were almost a whole iteration away. A walk therefore meets it
// before its true place; see Walk.
class Departures {
 public:
  static constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();

  struct Place {
    uint32_t next_use = kNever;  // a moment of the iteration
    uint64_t touched = 0;
    ChunkId chunk{};
    bool operator==(const Place&) const = default;
  };

  void Insert(const Place& place) { places_.insert(place); }
  void Erase(const Place& place) { places_.erase(place); }
  bool Contains(const Place& place) const { return places_.contains(place); }
  size_t size() const { return places_.size(); }

  // Calls visit(place) in the order of eviction as seen from moment `now`, until the visitor
  // returns kStop or has seen `limit` places. kMoved: the visitor erased the place and inserted the
  // chunk at its true place, which comes later in the walk.
  enum class Visited { kOn, kMoved, kStop };
  void Walk(uint32_t now, size_t limit, const std::function<Visited(const Place&)>& visit) const;

 private:
  struct Earlier {
    bool operator()(const Place& a, const Place& b) const {
      return std::tie(b.next_use, a.touched, a.chunk) < std::tie(a.next_use, b.touched, b.chunk);
    }
  };
  std::set<Place, Earlier> places_;
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_CHUNKS_DEPARTURES_H_
