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
  // What leaves to make space.
  enum class Leaves {
    kLeastRecent,  // the chunk used last the longest ago, until there is a hole
    kLastNeeded,   // the chunk used last in the rest of the iteration, until there is a hole
    // All that lies in the window that is cheapest to clear; what will be stale leaves at once. A
    // chunk costs what it takes to load it again, divided by the moments until that, or not.
    kCheapestWindow,
    kCheapestReload,
  };
  // Where chunks may lie.
  enum class Memory {
    kArena,  // each at one offset while it is there, first fit, below the workspace
    kIdeal,  // in memory that never fragments: better than any allocator
  };
  Leaves leaves = Leaves::kLeastRecent;
  Memory memory = Memory::kArena;
  // By item: never leaves while its copy is valid, and has a place of its own. Empty: none.
  std::vector<bool> pinned = {};
  // What is not pinned leaves after each use, unless the next moment uses it too.
  bool drops_after_use = false;
};

// What happens at one moment. Items, not chunks.
struct CacheMoment {
  std::vector<std::uint32_t> evicted;                          // before the loads, to make space
  std::vector<std::pair<std::uint32_t, std::int64_t>> loaded;  // with their offsets, in this order
  std::vector<std::uint32_t> dropped;                          // after the moment
};

// A cache of chunks that is filled on demand: a chunk is loaded when it is used, never before.
// Knows that weights change, and uses no stale one.
class DemandCache {
 public:
  // Items that are there and their offsets, the least recently used first: all that the next
  // iteration depends on.
  using State = std::vector<std::pair<std::uint32_t, std::int64_t>>;

  // The arguments must outlive this.
  DemandCache(const Trace& trace, const Problem& problem, const CacheRule& rule);

  // Runs one iteration. False if the chunks of some moment find no place beside what must stay, or
  // if work() exceeds the limit. At most the extents that are there for each load.
  bool RunIteration(const State& start, std::int64_t work_limit);

  // Of the last iteration.
  const State& end() const { return end_; }
  const std::vector<CacheMoment>& moments() const { return moments_; }
  // By use, numbered as the gap behind it.
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
    std::int64_t loaded_at = -1;  // by the clock
    std::uint32_t use = 0;        // the last one
  };
  struct Extent {
    std::int64_t end = 0;
    std::uint32_t item = 0;
    std::int64_t drains_until = 0;  // 0: a weight
  };
  // How a use finds its item.
  struct FoundItem {
    std::int64_t offset_bytes = 0;
    bool loaded = false;  // for it
  };
  struct MomentUse {
    std::uint32_t item = 0;
    std::uint32_t use = 0;
  };

  bool is_ideal() const { return rule_.memory == CacheRule::Memory::kIdeal; }
  bool clears_windows() const {
    return rule_.leaves == CacheRule::Leaves::kCheapestWindow ||
           rule_.leaves == CacheRule::Leaves::kCheapestReload;
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
  bool FreeWhatIsOver(std::int64_t t);
  bool LoadAll(std::int64_t t);
  void Leave(std::int64_t t);

  const Problem& problem_;
  const CacheRule& rule_;
  std::vector<std::vector<MomentUse>> uses_;  // by moment
  std::vector<std::int64_t> own_offset_;      // in ideal memory, and of pinned items
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

// The items to pin: in the order of their first use each that fits beside what every moment uses.
std::vector<bool> PinAllThatFit(const Problem& problem);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_DEMAND_DEMAND_CACHE_H_
