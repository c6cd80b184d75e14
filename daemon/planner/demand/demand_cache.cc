#include "daemon/planner/demand/demand_cache.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "daemon/planner/placement/cheapest_window.h"
#include "daemon/planner/problem/free_bytes.h"
#include "daemon/planner/timeline/timeline.h"

namespace geminid::planner {
namespace {

// Iterations to wait for a state that repeats, and then to agree on one.
constexpr int kMaxIterations = 8;
// Costs are scaled to this at most, so that sums over all uses stay below 2^63.
constexpr double kLargestCost = 0x1p40;
// Comparing two drafts is that much cheaper than other operations.
constexpr std::int64_t kPairsPerOperation = 16;

class DemandCache {
 public:
  DemandCache(const Trace& trace, const Problem& problem, const DemandRule& rule,
              std::int64_t work_limit, std::int64_t& work);
  std::optional<DemandResult> Run();

 private:
  struct ItemState {
    bool present = false;
    bool loaded_now = false;  // at this moment
    std::int64_t offset = 0;
    std::int64_t last_used = 0;
    std::uint32_t use = 0;  // the last one
    bool operator==(const ItemState&) const = default;
  };
  struct Extent {
    std::int64_t end = 0;
    std::uint32_t item = 0;
    std::int64_t drains_until = 0;  // 0: a weight
  };
  struct MomentUse {
    std::uint32_t item = 0;
    std::uint32_t use = 0;
  };
  // Items that are there, and where, by recency.
  using State = std::vector<std::pair<std::uint32_t, std::int64_t>>;

  std::int64_t Bytes(std::uint32_t i) const { return problem_.items[i].extent_bytes; }
  bool IsPinned(std::uint32_t i) const { return !rule_.pinned.empty() && rule_.pinned[i]; }
  bool IsUsed(std::uint32_t i, std::int64_t t) const;
  const Gap& GapOf(std::uint32_t i) const {
    return problem_.gaps[problem_.items[i].first_gap + items_[i].use];
  }
  std::int64_t NextUse(std::uint32_t i, std::int64_t t) const;
  State Now() const;
  void StartFrom(const State& state);
  void Remove(std::uint32_t i);
  void Put(std::uint32_t i, std::int64_t offset);
  std::int64_t LowestHole(std::uint32_t i, std::int64_t t) const;
  bool EvictOne(std::int64_t t);
  std::int64_t ClearWindow(std::uint32_t i, std::int64_t t);
  bool Place(std::uint32_t i, std::int64_t t);
  bool PlaceAllAnew(std::int64_t t);
  bool Load(std::int64_t t);
  void Leave(std::int64_t t);
  bool RunIteration();
  std::optional<State> Settle();
  DemandResult Result() const;

  const Problem& problem_;
  const DemandRule& rule_;
  const std::int64_t work_limit_;
  std::int64_t& work_;
  std::vector<std::vector<MomentUse>> uses_;
  std::vector<ItemState> items_;
  std::vector<std::int64_t> pinned_offset_;
  std::int64_t pinned_bytes_ = 0;
  std::map<std::int64_t, Extent> extents_;  // by offset; those above the pinned ones
  std::int64_t clock_ = 0;
  double most_transfer_bytes_ = 1;
  // Of the last iteration, by use (numbered as the gap behind it).
  std::vector<std::uint8_t> loaded_;
  std::vector<std::int64_t> offset_of_use_;
};

DemandCache::DemandCache(const Trace& trace, const Problem& problem, const DemandRule& rule,
                         std::int64_t work_limit, std::int64_t& work)
    : problem_(problem),
      rule_(rule),
      work_limit_(work_limit),
      work_(work),
      uses_(trace.moments.size()),
      items_(problem.items.size()),
      pinned_offset_(problem.items.size()),
      loaded_(problem.gaps.size()),
      offset_of_use_(problem.gaps.size()) {
  std::vector<std::uint32_t> item_of_chunk(trace.chunks.size());
  for (std::uint32_t i = 0; i < problem.items.size(); ++i) {
    item_of_chunk[problem.items[i].chunk] = i;
    most_transfer_bytes_ =
        std::max(most_transfer_bytes_, static_cast<double>(problem.items[i].transfer_bytes));
    if (!IsPinned(i)) continue;
    pinned_offset_[i] = pinned_bytes_;
    pinned_bytes_ += Bytes(i);
  }
  std::vector<std::uint32_t> seen(problem.items.size(), 0);
  for (std::size_t t = 0; t < uses_.size(); ++t) {
    for (const Use& use : trace.moments[t].uses) {
      const std::uint32_t i = item_of_chunk[use.chunk];
      uses_[t].push_back({i, seen[i]++});
    }
  }
}

bool DemandCache::IsUsed(std::uint32_t i, std::int64_t t) const {
  if (t >= problem_.num_moments) return false;
  const std::vector<MomentUse>& uses = uses_[static_cast<std::size_t>(t)];
  return std::any_of(uses.begin(), uses.end(), [i](const MomentUse& u) { return u.item == i; });
}

// Of something there: the next moment that uses it, unrolled.
std::int64_t DemandCache::NextUse(std::uint32_t i, std::int64_t t) const {
  const std::int64_t next = GapOf(i).last + 1;
  return next - t > problem_.num_moments ? next - problem_.num_moments : next;
}

// What is there, the least recently used first: all that the next iteration depends on.
DemandCache::State DemandCache::Now() const {
  State state;
  for (std::uint32_t i = 0; i < items_.size(); ++i) {
    if (items_[i].present) state.emplace_back(i, items_[i].offset);
  }
  std::sort(state.begin(), state.end(), [this](const auto& a, const auto& b) {
    return std::pair(items_[a.first].last_used, a.first) <
           std::pair(items_[b.first].last_used, b.first);
  });
  return state;
}

void DemandCache::StartFrom(const State& state) {
  extents_.clear();
  for (ItemState& item : items_) item = ItemState();
  clock_ = 0;
  for (const auto& [i, offset] : state) {
    Put(i, offset);
    items_[i].last_used = ++clock_;
    items_[i].use = static_cast<std::uint32_t>(problem_.items[i].uses.size() - 1);
  }
}

void DemandCache::Remove(std::uint32_t i) {
  items_[i].present = false;
  if (!IsPinned(i)) extents_.erase(items_[i].offset);
}

void DemandCache::Put(std::uint32_t i, std::int64_t offset) {
  items_[i].present = true;
  items_[i].offset = offset;
  if (!IsPinned(i)) extents_[offset] = {.end = offset + Bytes(i), .item = i};
}

std::int64_t DemandCache::LowestHole(std::uint32_t i, std::int64_t t) const {
  std::int64_t offset = pinned_bytes_;
  for (const auto& [begin, extent] : extents_) {
    if (offset + Bytes(i) <= begin) break;
    offset = extent.end;
  }
  work_ += static_cast<std::int64_t>(extents_.size()) + 1;
  const bool fits = offset + Bytes(i) <= problem_.capacity_bytes[static_cast<std::size_t>(t)];
  return fits ? offset : -1;
}

bool DemandCache::EvictOne(std::int64_t t) {
  std::int64_t best = -1;
  std::pair<std::int64_t, std::uint32_t> least;
  for (const auto& [begin, extent] : extents_) {
    const std::uint32_t i = extent.item;
    if (extent.drains_until > 0 || IsUsed(i, t)) continue;
    const std::int64_t next = std::min(NextUse(i, t), problem_.num_moments);
    const bool recent = rule_.leaves == DemandRule::Leaves::kLeastRecent;
    const std::pair<std::int64_t, std::uint32_t> key(recent ? items_[i].last_used : -next, i);
    if (best >= 0 && key > least) continue;
    best = i;
    least = key;
  }
  work_ += static_cast<std::int64_t>(extents_.size());
  if (best < 0) return false;
  Remove(static_cast<std::uint32_t>(best));
  return true;
}

std::int64_t DemandCache::ClearWindow(std::uint32_t i, std::int64_t t) {
  std::vector<Taken> taken;
  for (const auto& [begin, extent] : extents_) {
    Taken at = {.begin = begin, .end = extent.end, .owner = extent.item};
    at.fixed = extent.drains_until > 0 || IsUsed(extent.item, t);
    if (!at.fixed) {
      const Item& item = problem_.items[extent.item];
      const auto ahead = static_cast<double>(NextUse(extent.item, t) - t);
      double cost =
          kLargestCost * (static_cast<double>(item.transfer_bytes) / most_transfer_bytes_);
      for (int k = 0; k < rule_.power; ++k) cost /= ahead;
      at.cost.reload_bytes = 1 + static_cast<std::int64_t>(cost);
    }
    taken.push_back(at);
  }
  work_ += 4 * static_cast<std::int64_t>(taken.size());
  const WindowChoice choice = CheapestWindow(taken, Bytes(i), pinned_bytes_,
                                             problem_.capacity_bytes[static_cast<std::size_t>(t)]);
  if (choice.offset_bytes < 0) return -1;
  for (std::size_t k = choice.first; k < choice.last; ++k) Remove(taken[k].owner);
  return choice.offset_bytes;
}

bool DemandCache::Place(std::uint32_t i, std::int64_t t) {
  items_[i].loaded_now = true;
  if (IsPinned(i)) {
    Put(i, pinned_offset_[i]);
    return true;
  }
  std::int64_t offset = -1;
  if (rule_.leaves == DemandRule::Leaves::kCheapestWindow) {
    offset = ClearWindow(i, t);
  } else {
    offset = LowestHole(i, t);
    while (offset < 0 && EvictOne(t)) offset = LowestHole(i, t);
  }
  if (offset < 0) return PlaceAllAnew(t);
  Put(i, offset);
  return true;
}

// The chunks of this moment stand in each other's way: all of them go, and are loaded side by side.
bool DemandCache::PlaceAllAnew(std::int64_t t) {
  const std::vector<MomentUse>& uses = uses_[static_cast<std::size_t>(t)];
  if (rule_.leaves == DemandRule::Leaves::kCheapestWindow) {
    while (EvictOne(t)) continue;
  }
  for (const MomentUse& use : uses) {
    if (IsPinned(use.item) || !items_[use.item].present) continue;
    Remove(use.item);
    items_[use.item].loaded_now = true;
  }
  for (const MomentUse& use : uses) {
    if (items_[use.item].present) continue;
    const std::int64_t offset =
        IsPinned(use.item) ? pinned_offset_[use.item] : LowestHole(use.item, t);
    if (offset < 0) return false;
    items_[use.item].loaded_now = true;
    Put(use.item, offset);
  }
  return true;
}

bool DemandCache::Load(std::int64_t t) {
  if (work_ > work_limit_) return false;
  ++clock_;
  const std::int64_t capacity = problem_.capacity_bytes[static_cast<std::size_t>(t)];
  for (auto at = extents_.begin(); at != extents_.end();) {
    const auto& [begin, extent] = *at;
    const bool drained = extent.drains_until > 0 && extent.drains_until <= t;
    const bool reached = extent.end > capacity;
    if (reached && extent.drains_until > t) return false;
    if ((drained || reached) && extent.drains_until == 0) items_[extent.item].present = false;
    at = drained || reached ? extents_.erase(at) : std::next(at);
  }
  work_ += static_cast<std::int64_t>(extents_.size());
  const std::vector<MomentUse>& uses = uses_[static_cast<std::size_t>(t)];
  for (const MomentUse& use : uses) items_[use.item].loaded_now = false;
  for (const MomentUse& use : uses) {
    if (!items_[use.item].present && !Place(use.item, t)) return false;
  }
  for (const MomentUse& use : uses) {
    ItemState& item = items_[use.item];
    const std::size_t k = problem_.items[use.item].first_gap + use.use;
    loaded_[k] = item.loaded_now;
    offset_of_use_[k] = item.offset;
    item.last_used = clock_;
    item.use = use.use;
  }
  return true;
}

void DemandCache::Leave(std::int64_t t) {
  for (const MomentUse& use : uses_[static_cast<std::size_t>(t)]) {
    const std::uint32_t i = use.item;
    const ItemUse& last = problem_.items[i].uses[use.use];
    const bool dead =
        rule_.leaves == DemandRule::Leaves::kCheapestWindow && !GapOf(i).valued && !IsPinned(i);
    const bool dropped = rule_.drops_after_use && !IsPinned(i) && !IsUsed(i, t + 1);
    if (!last.invalidates && !dead && !dropped) continue;
    Remove(i);
    if (!last.invalidates || IsPinned(i) || last.free_moment <= t + 1) continue;
    extents_[items_[i].offset] = {
        .end = items_[i].offset + Bytes(i), .item = i, .drains_until = last.free_moment};
  }
}

bool DemandCache::RunIteration() {
  for (std::int64_t t = 0; t < problem_.num_moments; ++t) {
    if (!Load(t)) return false;
    Leave(t);
  }
  for (std::uint32_t i = 0; i < items_.size(); ++i) {
    if (items_[i].present && problem_.items[i].changes) Remove(i);
  }
  return true;
}

// A state that an iteration from it ends with, and perhaps with more; its iteration was the last.
std::optional<DemandCache::State> DemandCache::Settle() {
  State state;
  for (int i = 0; i < kMaxIterations; ++i) {
    StartFrom(state);
    if (!RunIteration()) return std::nullopt;
    State end = Now();
    if (end == state) return state;
    state = std::move(end);
  }
  for (int i = 0; i < kMaxIterations; ++i) {
    StartFrom(state);
    if (!RunIteration()) return std::nullopt;
    const State end = Now();
    State agreed;
    for (const auto& placed : state) {
      if (std::find(end.begin(), end.end(), placed) != end.end()) agreed.push_back(placed);
    }
    work_ += static_cast<std::int64_t>(state.size() * end.size());
    if (agreed.size() == state.size()) return state;
    state = std::move(agreed);
  }
  StartFrom({});
  if (!RunIteration()) return std::nullopt;
  return State();
}

DemandResult DemandCache::Result() const {
  const std::int64_t n = problem_.num_moments;
  DemandResult result;
  result.retained.assign(problem_.gaps.size(), 0);
  for (std::uint32_t i = 0; i < items_.size(); ++i) {
    const Item& item = problem_.items[i];
    for (std::size_t k = 0; k < item.uses.size(); ++k) {
      const std::size_t gap = item.first_gap + k;
      const std::size_t next = item.first_gap + (k + 1) % item.uses.size();
      result.retained[gap] = problem_.gaps[gap].valued && !loaded_[next];
    }
  }
  result.drafts = BuildDrafts(problem_, result.retained);
  for (ResidencyDraft& draft : result.drafts) {
    draft.offset_bytes = offset_of_use_[problem_.items[draft.item].first_gap + draft.first_use];
    if (!draft.permanent) draft.end = std::min(draft.end, (draft.last_moment / n + 1) * n);
  }
  return result;
}

std::optional<DemandResult> DemandCache::Run() {
  if (!Settle().has_value()) return std::nullopt;
  return Result();
}

}  // namespace

std::optional<DemandResult> RunOnDemand(const Trace& trace, const Problem& problem,
                                        const DemandRule& rule, std::int64_t work_limit,
                                        std::int64_t& work) {
  return DemandCache(trace, problem, rule, work_limit, work).Run();
}

void LoadAheadInPlace(const Trace& trace, const PlannerOptions& options, const Problem& problem,
                      std::vector<ResidencyDraft>& drafts, std::int64_t& work) {
  const std::int64_t n = problem.num_moments;
  std::vector<ResidencyDraft> wanted = drafts;
  ScheduleLoads(trace, options, problem, /*unlimited_space=*/false, wanted);
  work += static_cast<std::int64_t>(drafts.size() * drafts.size()) / kPairsPerOperation;
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    ResidencyDraft& draft = drafts[i];
    if (draft.permanent) continue;
    const std::int64_t top = draft.offset_bytes + problem.items[draft.item].extent_bytes;
    std::int64_t begin = wanted[i].begin;
    for (std::int64_t t = draft.first_moment - 1; t >= begin; --t) {
      if (problem.capacity_bytes[static_cast<std::size_t>((t + n) % n)] < top) begin = t + 1;
    }
    for (const ResidencyDraft& other : drafts) {
      const std::int64_t other_top = other.offset_bytes + problem.items[other.item].extent_bytes;
      const bool apart = other_top <= draft.offset_bytes || top <= other.offset_bytes;
      if (apart && other.item != draft.item) continue;
      for (const std::int64_t end : {other.end - 2 * n, other.end - n, other.end}) {
        if (end <= draft.first_moment) begin = std::max(begin, end);
      }
    }
    draft.begin = begin;
    draft.limit = begin > wanted[i].begin ? StallCause::kSpace : wanted[i].limit;
  }
}

std::vector<bool> PinInOrder(const Problem& problem, Pins pins) {
  const std::int64_t last = problem.num_moments - 1;
  std::vector<std::int64_t> free_bytes = problem.capacity_bytes;
  for (const Item& item : problem.items) {
    for (const ItemUse& use : item.uses) {
      free_bytes[static_cast<std::size_t>(use.moment)] -= item.extent_bytes;
    }
  }
  FreeBytes remaining(free_bytes);
  std::vector<bool> pinned(problem.items.size());
  const auto pin = [&](const Item& item, std::int64_t bytes) {
    remaining.Add(0, last, -bytes);
    for (const ItemUse& use : item.uses) remaining.Add(use.moment, use.moment, bytes);
  };
  for (std::size_t i = 0; i < problem.items.size(); ++i) {
    const Item& item = problem.items[i];
    pin(item, item.extent_bytes);
    pinned[i] = remaining.Has(0, last, 0);
    if (pinned[i]) continue;
    pin(item, -item.extent_bytes);
    if (pins == Pins::kUntilOneDoesNot) break;
  }
  return pinned;
}

}  // namespace geminid::planner
