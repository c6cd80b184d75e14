#include "daemon/planner/demand/demand_cache.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "daemon/planner/placement/cheapest_window.h"
#include "daemon/planner/problem/free_bytes.h"

namespace geminid::planner {
namespace {

constexpr std::int64_t kNowhere = -1;
// Costs are at most this, so that sums over all uses stay below 2^63.
constexpr double kLargestCost = 0x1p40;

}  // namespace

DemandCache::DemandCache(const Trace& trace, const Problem& problem, const CacheRule& rule)
    : problem_(problem),
      rule_(rule),
      uses_(trace.moments.size()),
      own_offset_(problem.items.size()),
      items_(problem.items.size()),
      found_(problem.gaps.size()) {
  std::vector<std::uint32_t> item_of_chunk(trace.chunks.size());
  for (std::uint32_t i = 0; i < problem.items.size(); ++i) {
    item_of_chunk[problem.items[i].chunk] = i;
    most_transfer_bytes_ =
        std::max(most_transfer_bytes_, static_cast<double>(problem.items[i].transfer_bytes));
  }
  for (const bool pinned : {true, false}) {
    if (!pinned) pinned_bytes_ = address_space_bytes_;
    for (std::uint32_t i = 0; i < problem.items.size(); ++i) {
      if (IsPinned(i) != pinned) continue;
      own_offset_[i] = address_space_bytes_;
      address_space_bytes_ += Bytes(i);
    }
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

// The next moment that uses a present item, unrolled over the iterations.
std::int64_t DemandCache::NextUse(std::uint32_t i, std::int64_t t) const {
  const std::int64_t next = GapOf(i).last + 1;
  return next - t > problem_.num_moments ? next - problem_.num_moments : next;
}

void DemandCache::SetEnd() {
  end_.clear();
  for (std::uint32_t i = 0; i < items_.size(); ++i) {
    if (items_[i].present) end_.emplace_back(i, items_[i].offset);
  }
  std::sort(end_.begin(), end_.end(), [this](const auto& a, const auto& b) {
    return std::pair(items_[a.first].last_used, a.first) <
           std::pair(items_[b.first].last_used, b.first);
  });
}

void DemandCache::StartFrom(const State& state) {
  extents_.clear();
  occupied_bytes_ = 0;
  for (ItemState& item : items_) item = ItemState();
  moments_.assign(uses_.size(), CacheMoment());
  clock_ = 0;
  for (const auto& [i, offset] : state) {
    Put(i, offset);
    items_[i].last_used = ++clock_;
    items_[i].use = static_cast<std::uint32_t>(problem_.items[i].uses.size() - 1);
  }
}

void DemandCache::Remove(std::uint32_t i) {
  items_[i].present = false;
  occupied_bytes_ -= Bytes(i);
  if (!IsPinned(i)) extents_.erase(items_[i].offset);
}

// An item that was loaded at this very moment counts as never loaded.
void DemandCache::Evict(std::uint32_t i, std::int64_t t) {
  Remove(i);
  if (IsLoadedNow(i)) {
    std::erase_if(now(t).loaded, [i](const auto& load) { return load.first == i; });
  } else {
    now(t).evicted.push_back(i);
  }
}

void DemandCache::Put(std::uint32_t i, std::int64_t offset) {
  items_[i].present = true;
  items_[i].offset = offset;
  occupied_bytes_ += Bytes(i);
  if (!IsPinned(i)) extents_[offset] = {.end = offset + Bytes(i), .item = i};
}

void DemandCache::Load(std::uint32_t i, std::int64_t offset, std::int64_t t) {
  Put(i, offset);
  items_[i].loaded_at = clock_;
  now(t).loaded.emplace_back(i, offset);
}

std::int64_t DemandCache::LowestHole(std::uint32_t i, std::int64_t t) {
  std::int64_t offset = pinned_bytes_;
  for (const auto& [begin, extent] : extents_) {
    if (offset + Bytes(i) <= begin) break;
    offset = extent.end;
  }
  work_ += static_cast<std::int64_t>(extents_.size()) + 1;
  return offset + Bytes(i) <= CapacityBytes(t) ? offset : kNowhere;
}

bool DemandCache::EvictOne(std::int64_t t) {
  const std::uint32_t* best = nullptr;
  std::pair<std::int64_t, std::uint32_t> least;
  for (const auto& [begin, extent] : extents_) {
    const std::uint32_t i = extent.item;
    if (extent.drains_until > 0 || IsUsed(i, t)) continue;
    const std::int64_t next = std::min(NextUse(i, t), problem_.num_moments);
    const bool recent = rule_.eviction == CacheRule::EvictionRule::kLeastRecent;
    const std::pair<std::int64_t, std::uint32_t> key(recent ? items_[i].last_used : -next, i);
    if (best != nullptr && key > least) continue;
    best = &extent.item;
    least = key;
  }
  work_ += static_cast<std::int64_t>(extents_.size());
  if (best == nullptr) return false;
  Evict(*best, t);
  return true;
}

// Called for ideal memory only.
bool DemandCache::EvictFor(std::int64_t needed_bytes, std::int64_t t) {
  while (occupied_bytes_ + needed_bytes > CapacityBytes(t)) {
    if (!EvictOne(t)) return false;
  }
  return true;
}

std::int64_t DemandCache::ClearWindow(std::uint32_t i, std::int64_t t) {
  std::vector<OccupiedExtent> taken;
  for (const auto& [begin, extent] : extents_) {
    OccupiedExtent at = {.begin = begin, .end = extent.end, .owner = extent.item};
    at.fixed = extent.drains_until > 0 || IsUsed(extent.item, t);
    if (!at.fixed) {
      const Item& item = problem_.items[extent.item];
      double cost =
          kLargestCost * (static_cast<double>(item.transfer_bytes) / most_transfer_bytes_);
      if (rule_.eviction == CacheRule::EvictionRule::kCheapestWindow) {
        cost /= static_cast<double>(NextUse(extent.item, t) - t);
      }
      at.cost.reload_bytes = 1 + static_cast<std::int64_t>(cost);
    }
    taken.push_back(at);
  }
  work_ += 4 * static_cast<std::int64_t>(taken.size());
  const WindowChoice choice = CheapestWindow(taken, Bytes(i), pinned_bytes_, CapacityBytes(t));
  if (choice.offset_bytes < 0) return kNowhere;
  for (std::size_t k = choice.first; k < choice.last; ++k) Evict(taken[k].owner, t);
  return choice.offset_bytes;
}

bool DemandCache::Place(std::uint32_t i, std::int64_t t) {
  std::int64_t offset = kNowhere;
  if (HasPlaceOfItsOwn(i)) {
    offset = own_offset_[i];
  } else if (clears_windows()) {
    offset = ClearWindow(i, t);
  } else {
    offset = LowestHole(i, t);
    while (offset < 0 && EvictOne(t)) offset = LowestHole(i, t);
  }
  if (offset < 0) return PlaceAllAnew(t);
  Load(i, offset, t);
  return true;
}

// The chunks of this moment obstruct each other: evicts all of them and loads them side by side.
bool DemandCache::PlaceAllAnew(std::int64_t t) {
  const std::vector<MomentUse>& uses = uses_[static_cast<std::size_t>(t)];
  if (clears_windows()) {
    while (EvictOne(t)) continue;
  }
  for (const MomentUse& use : uses) {
    if (!IsPinned(use.item) && items_[use.item].present) Evict(use.item, t);
  }
  for (const MomentUse& use : uses) {
    if (items_[use.item].present) continue;
    const std::int64_t offset =
        IsPinned(use.item) ? own_offset_[use.item] : LowestHole(use.item, t);
    if (offset < 0) return false;
    Load(use.item, offset, t);
  }
  return true;
}

// Frees the extents of gradients that have left, and evicts chunks that the growing workspace
// reaches. False if the workspace reaches a gradient.
bool DemandCache::MakeRoomForWorkspace(std::int64_t t) {
  for (auto at = extents_.begin(); at != extents_.end();) {
    const Extent extent = at->second;
    ++at;
    const bool reached = !is_ideal() && extent.end > CapacityBytes(t);
    if (extent.drains_until == 0) {
      if (reached) Evict(extent.item, t);
    } else if (extent.drains_until <= t) {
      extents_.erase(std::prev(at));
    } else if (reached) {
      return false;
    }
  }
  work_ += static_cast<std::int64_t>(extents_.size());
  return true;
}

bool DemandCache::LoadAll(std::int64_t t) {
  ++clock_;
  const std::vector<MomentUse>& uses = uses_[static_cast<std::size_t>(t)];
  std::int64_t needed_bytes = 0;
  if (pinned_bytes_ > CapacityBytes(t) || !MakeRoomForWorkspace(t)) return false;
  for (const MomentUse& use : uses) {
    if (!items_[use.item].present) needed_bytes += Bytes(use.item);
  }
  if (is_ideal() && !EvictFor(needed_bytes, t)) return false;
  for (const MomentUse& use : uses) {
    if (!items_[use.item].present && !Place(use.item, t)) return false;
  }
  for (const MomentUse& use : uses) {
    ItemState& item = items_[use.item];
    const std::size_t k = problem_.items[use.item].first_gap + use.use;
    found_[k] = {.offset_bytes = item.offset, .loaded = IsLoadedNow(use.item)};
    item.last_used = clock_;
    item.use = use.use;
  }
  return true;
}

void DemandCache::Leave(std::int64_t t) {
  for (const MomentUse& use : uses_[static_cast<std::size_t>(t)]) {
    const std::uint32_t i = use.item;
    const ItemUse& last = problem_.items[i].uses[use.use];
    const bool stale = clears_windows() && !GapOf(i).valued && !IsPinned(i);
    const bool dropped = rule_.drops_after_use && !IsPinned(i) && !IsUsed(i, t + 1);
    if (!last.invalidates && !stale && !dropped) continue;
    Remove(i);
    if (!last.invalidates) now(t).dropped.push_back(i);
    if (!last.invalidates || HasPlaceOfItsOwn(i) || last.free_moment <= t + 1) continue;
    extents_[items_[i].offset] = {
        .end = items_[i].offset + Bytes(i), .item = i, .drains_until = last.free_moment};
  }
}

bool DemandCache::RunIteration(const State& start, std::int64_t work_limit) {
  StartFrom(start);
  for (std::int64_t t = 0; t < problem_.num_moments; ++t) {
    if (work_ > work_limit || !LoadAll(t)) return false;
    Leave(t);
  }
  for (std::uint32_t i = 0; i < items_.size(); ++i) {
    if (!items_[i].present || !problem_.items[i].changes) continue;
    Remove(i);
    moments_.back().dropped.push_back(i);
  }
  SetEnd();
  return true;
}

std::vector<bool> PinAllThatFit(const Problem& problem) {
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
    if (!pinned[i]) pin(item, -item.extent_bytes);
  }
  return pinned;
}

}  // namespace geminid::planner
