#ifndef GEMINID_DAEMON_PLANNER_DEMAND_DEMAND_CACHE_H_
#define GEMINID_DAEMON_PLANNER_DEMAND_DEMAND_CACHE_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "daemon/planner/contract/trace.h"
#include "daemon/planner/problem/problem.h"

namespace geminid::planner {

struct CacheRule {
  // The chunks that are evicted to make space.
  enum class EvictionRule {
    kLeastRecent,  // the least recently used chunk, until there is a hole
    kLastNeeded,   // the chunk with the latest next use in the iteration, until there is a hole
    // All chunks in the window that is cheapest to clear; a chunk that will be stale leaves at
    // once. A chunk costs its transfer bytes. kCheapestWindow divides them by the moments to its
    // next use.
    kCheapestWindow,
    kCheapestReload,
  };
  // Where chunks may lie.
  enum class Memory {
    kArena,  // each at one offset while it is present, first fit, below the workspace
    kIdeal,  // in memory that never fragments: better than any allocator
  };
  EvictionRule eviction = EvictionRule::kLeastRecent;
  Memory memory = Memory::kArena;
  // By item: it is never evicted while its copy is valid, and has a place of its own. Empty: none.
  std::vector<bool> pinned = {};
  // Items that are not pinned leave after each use, unless the next moment uses them too.
  bool drops_after_use = false;
};

// The events of one moment. The numbers are indices of items, not of chunks.
struct CacheMoment {
  std::vector<std::uint32_t> evicted;                          // before the loads, to make space
  std::vector<std::pair<std::uint32_t, std::int64_t>> loaded;  // with their offsets, in this order
  std::vector<std::uint32_t> dropped;                          // after the moment
};

// A cache of chunks that is filled on demand: a chunk is loaded when it is used, never before. No
// use gets a stale weight.
class DemandCache {
 public:
  // The present items and their offsets, the least recently used first. The next iteration depends
  // on nothing else.
  using State = std::vector<std::pair<std::uint32_t, std::int64_t>>;

  // The arguments must outlive the cache.
  DemandCache(const Trace& trace, const Problem& problem, const CacheRule& rule);

  // Runs one iteration. False if the chunks of some moment find no place beside chunks that must
  // stay, or if work() exceeds the limit. Cost: at most the present extents for each load.
  bool RunIteration(const State& start, std::int64_t work_limit);

  // Results of the last iteration.
  const State& end() const { return end_; }
  const std::vector<CacheMoment>& moments() const { return moments_; }
  // By use; a use has the number of the gap behind it.
  bool is_loaded(std::size_t use) const { return found_[use].loaded; }
  std::int64_t offset_bytes(std::size_t use) const { return found_[use].offset_bytes; }

  // Bytes of all items side by side, the pinned ones first: the offsets of ideal memory.
  std::int64_t address_space_bytes() const { return address_space_bytes_; }
  // Operations so far, for a budget that does not depend on time.
  std::int64_t work() const { return work_; }

 private:
  struct ItemState {
    bool present = false;
    std::int64_t offset = 0;
    std::int64_t last_used = 0;
    std::int64_t loaded_at = -1;  // a value of clock_
    std::uint32_t use = 0;        // the item's last use
  };
  struct Extent {
    std::int64_t end = 0;
    std::uint32_t item = 0;
    std::int64_t drains_until = 0;  // 0: the extent holds a weight
  };
  // How a use finds its item.
  struct FoundItem {
    std::int64_t offset_bytes = 0;
    bool loaded = false;  // for this use
  };
  struct MomentUse {
    std::uint32_t item = 0;
    std::uint32_t use = 0;
  };

  bool is_ideal() const { return rule_.memory == CacheRule::Memory::kIdeal; }
  bool clears_windows() const {
    return rule_.eviction == CacheRule::EvictionRule::kCheapestWindow ||
           rule_.eviction == CacheRule::EvictionRule::kCheapestReload;
  }
  std::int64_t Bytes(std::uint32_t i) const { return problem_.items[i].extent_bytes; }
  bool IsPinned(std::uint32_t i) const { return !rule_.pinned.empty() && rule_.pinned[i]; }
  bool HasPlaceOfItsOwn(std::uint32_t i) const { return is_ideal() || IsPinned(i); }
  bool IsLoadedNow(std::uint32_t i) const { return items_[i].loaded_at == clock_; }
  bool IsUsed(std::uint32_t i, std::int64_t t) const;
  const Gap& GapOf(std::uint32_t i) const {
    return problem_.gaps[problem_.items[i].first_gap + items_[i].use];
  }
  std::int64_t NextUse(std::uint32_t i, std::int64_t t) const;
  CacheMoment& now(std::int64_t t) { return moments_[static_cast<std::size_t>(t)]; }
  std::int64_t CapacityBytes(std::int64_t t) const {
    return problem_.capacity_bytes[static_cast<std::size_t>(t)];
  }

  void StartFrom(const State& state);
  void SetEnd();
  void Remove(std::uint32_t i);
  void Evict(std::uint32_t i, std::int64_t t);
  void Put(std::uint32_t i, std::int64_t offset);
  void Load(std::uint32_t i, std::int64_t offset, std::int64_t t);
  std::int64_t LowestHole(std::uint32_t i, std::int64_t t);
  bool EvictOne(std::int64_t t);
  bool EvictFor(std::int64_t needed_bytes, std::int64_t t);
  std::int64_t ClearWindow(std::uint32_t i, std::int64_t t);
  bool Place(std::uint32_t i, std::int64_t t);
  bool PlaceAllAnew(std::int64_t t);
  bool MakeRoomForWorkspace(std::int64_t t);
  bool LoadAll(std::int64_t t);
  void Leave(std::int64_t t);

  const Problem& problem_;
  const CacheRule& rule_;
  std::vector<std::vector<MomentUse>> uses_;  // by moment
  std::vector<std::int64_t> own_offset_;      // in ideal memory, and for pinned items
  std::int64_t pinned_bytes_ = 0;
  std::int64_t address_space_bytes_ = 0;
  double most_transfer_bytes_ = 1;
  std::int64_t work_ = 0;

  std::vector<ItemState> items_;
  std::map<std::int64_t, Extent> extents_;  // by offset; without the pinned ones
  std::int64_t occupied_bytes_ = 0;         // of items
  std::int64_t clock_ = 0;                  // counts moments
  State end_;
  std::vector<CacheMoment> moments_;
  std::vector<FoundItem> found_;  // by use
};

// The items to pin: each item, in the order of first use, that fits beside every moment's items.
std::vector<bool> PinAllThatFit(const Problem& problem);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_DEMAND_DEMAND_CACHE_H_
