// Chunks in the order in which their device copies should be evicted: farthest next use first, then
// the least recently used.
#ifndef GEMINID_DAEMON_CORE_CHUNKS_EVICTION_ORDER_H_
#define GEMINID_DAEMON_CORE_CHUNKS_EVICTION_ORDER_H_

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
// Entries are not updated as time passes: an entry may name a use that is already in the past. Such
// a chunk looks as if its next use were almost a whole iteration away. A walk therefore meets it
// before its true position; see Walk.
class EvictionOrder {
 public:
  static constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();

  struct Entry {
    uint32_t next_use = kNever;  // a moment of the iteration
    uint64_t touched = 0;
    ChunkId chunk{};
    bool operator==(const Entry&) const = default;
  };

  void Insert(const Entry& entry) { entries_.insert(entry); }
  void Erase(const Entry& entry) { entries_.erase(entry); }
  bool Contains(const Entry& entry) const { return entries_.contains(entry); }
  size_t size() const { return entries_.size(); }

  // Calls visit(entry) in the order of eviction as seen from moment `now`, until the visitor
  // returns kStop or has seen `limit` entries. kMoved: the visitor erased the entry and inserted
  // the chunk at its true position, which comes later in the walk.
  enum class WalkStep { kOn, kMoved, kStop };
  void Walk(uint32_t now, size_t limit, const std::function<WalkStep(const Entry&)>& visit) const;

 private:
  struct IsEvictedBefore {
    bool operator()(const Entry& a, const Entry& b) const {
      return std::tie(b.next_use, a.touched, a.chunk) < std::tie(a.next_use, b.touched, b.chunk);
    }
  };
  std::set<Entry, IsEvictedBefore> entries_;
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_CHUNKS_EVICTION_ORDER_H_
