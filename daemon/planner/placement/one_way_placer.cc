#include "daemon/planner/placement/one_way_placer.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace geminid::planner {
namespace {

// The number of extents in the first search for a window to clear.
constexpr std::size_t kFirstExtents = 128;

}  // namespace

OneWayPlacer::OneWayPlacer(Direction direction, FreeSpace::Prefer prefer, std::int64_t tightest,
                           const Fixed& fixed, Lifetimes& lifetimes,
                           std::vector<ResidencyDraft>& drafts)
    : direction_(direction),
      prefer_(prefer),
      tightest_(tightest),
      fixed_(fixed),
      lifetimes_(lifetimes),
      drafts_(drafts),
      space_(*std::max_element(lifetimes.capacity().begin(), lifetimes.capacity().end())),
      meeting_(lifetimes.capacity().size() + 1),
      leaving_(lifetimes.capacity().size() + 1),
      returning_(lifetimes.capacity().size() + 1) {
  for (const std::uint32_t i : fixed.whole) {
    space_.Take(drafts[i].offset_bytes, lifetimes.Bytes(i));
    top_of_whole_ = drafts[i].offset_bytes + lifetimes.Bytes(i);
  }
  for (const FreeSpace::Obstacle& place : fixed.crossing) {
    const std::int64_t at =
        forwards() ? lifetimes.LateBegin(place.owner) : lifetimes.EarlyEnd(place.owner) - 1;
    returning_[static_cast<std::size_t>(at)].push_back(place.owner);
  }
}

std::size_t OneWayPlacer::MetAt(std::uint32_t i) const {
  return static_cast<std::size_t>(forwards() ? lifetimes_[i].begin : lifetimes_[i].end - 1);
}

// An index of leaving_. Backwards, PassTo(moment) handles index moment + 1, so a draft leaves at
// the moment before its lifetime begins.
std::size_t OneWayPlacer::GoneAt(std::uint32_t i) const {
  return static_cast<std::size_t>(forwards() ? lifetimes_[i].end : lifetimes_[i].begin);
}

void OneWayPlacer::AddPlaced(std::uint32_t i) { Take(i, drafts_[i].offset_bytes); }

void OneWayPlacer::AddToMeet(std::uint32_t i) { meeting_[MetAt(i)].push_back(i); }

// Drafts that are needed now come before drafts that are loaded ahead. Then the lower ceiling and
// the larger draft come first, or the earlier deadline.
void OneWayPlacer::Sort(std::int64_t moment, Indices& met) const {
  const auto key = [&](std::uint32_t i) {
    const bool ahead = IsAhead(i, moment);
    return std::make_tuple(ahead ? lifetimes_[i].first_use : -1, lifetimes_.Ceiling(i),
                           -lifetimes_.Bytes(i), i);
  };
  std::sort(met.begin(), met.end(),
            [&](std::uint32_t a, std::uint32_t b) { return key(a) < key(b); });
}

// Whether the draft is only being loaded at the moment, not used yet.
bool OneWayPlacer::IsAhead(std::uint32_t i, std::int64_t moment) const {
  return moment < lifetimes_[i].first_use;
}

bool OneWayPlacer::IsInTheWay(std::uint32_t other, std::uint32_t i) const {
  return forwards() ? lifetimes_.LateBegin(other) < lifetimes_[i].end
                    : lifetimes_.EarlyEnd(other) > lifetimes_[i].begin;
}

void OneWayPlacer::Run(std::vector<std::uint32_t>& failed, std::vector<std::uint32_t>& left_over) {
  left_over_ = &left_over;
  const auto n = static_cast<std::int64_t>(lifetimes_.capacity().size());
  const std::int64_t step = forwards() ? 1 : -1;
  for (std::int64_t t = tightest_ + step; t >= 0 && t < n; t += step) {
    PassTo(t);
    Indices& met = meeting_[static_cast<std::size_t>(t)];
    Sort(t, met);
    // A draft that is put off is met at a later moment, so the loop adds nothing to `met`.
    for (const std::uint32_t i : met) {
      Meet(i, t);
      if (drafts_[i].offset_bytes == FreeSpace::kNowhere) failed.push_back(i);
    }
  }
}

void OneWayPlacer::PassTo(std::int64_t moment) {
  const auto gone = static_cast<std::size_t>(forwards() ? moment : moment + 1);
  for (const std::uint32_t i : leaving_[gone]) {
    // The draft may have been removed and placed again since.
    const auto at = placed_.find(drafts_[i].offset_bytes);
    if (at != placed_.end() && at->second == i && GoneAt(i) == gone) Remove(i);
  }
  for (const std::uint32_t i : returning_[static_cast<std::size_t>(moment)]) {
    space_.Take(drafts_[i].offset_bytes, lifetimes_.Bytes(i));
  }
}

std::int64_t OneWayPlacer::Find(std::uint32_t i) const {
  return space_.Find(lifetimes_.Bytes(i), lifetimes_.Ceiling(i), prefer_, fixed_.crossing,
                     [&](std::uint32_t other) { return IsInTheWay(other, i); });
}

void OneWayPlacer::Take(std::uint32_t i, std::int64_t offset_bytes) {
  drafts_[i].offset_bytes = offset_bytes;
  space_.Take(offset_bytes, lifetimes_.Bytes(i));
  placed_.emplace(offset_bytes, i);
  leaving_[GoneAt(i)].push_back(i);
}

void OneWayPlacer::Remove(std::uint32_t i) {
  space_.Give(drafts_[i].offset_bytes, lifetimes_.Bytes(i));
  placed_.erase(drafts_[i].offset_bytes);
}

void OneWayPlacer::Meet(std::uint32_t i, std::int64_t moment) {
  ++work_;
  std::int64_t offset = Find(i);
  if (offset == FreeSpace::kNowhere && IsAhead(i, moment)) {
    // Only forwards: backwards the placer meets a draft at its end.
    lifetimes_.BeginAt(i, moment + 1);
    meeting_[static_cast<std::size_t>(moment + 1)].push_back(i);
    drafts_[i].offset_bytes = 0;
    return;
  }
  if (offset == FreeSpace::kNowhere && !forwards() &&
      lifetimes_[i].begin < lifetimes_[i].first_use) {
    lifetimes_.BeginAt(i, lifetimes_[i].first_use);
    offset = Find(i);
  }
  if (offset == FreeSpace::kNowhere && !lifetimes_.problem().without.Has(Stage::kClearWindows))
    offset = ClearFor(i, moment);
  if (offset == FreeSpace::kNowhere) {
    drafts_[i].offset_bytes = offset;
  } else {
    Take(i, offset);
  }
}

OccupiedExtent OneWayPlacer::ExtentOf(std::uint32_t i, std::int64_t moment) const {
  OccupiedExtent taken = {.begin = drafts_[i].offset_bytes,
                          .end = drafts_[i].offset_bytes + lifetimes_.Bytes(i),
                          .owner = i};
  if (IsAhead(i, moment)) {
    taken.cost.delayed_bytes = lifetimes_.Bytes(i);
  } else if (lifetimes_.IsIdleAt(i, moment)) {
    taken.cost.reload_bytes = lifetimes_.ReloadBytes(i);
  } else {
    taken.fixed = true;
  }
  return taken;
}

// Appends up to `count` placed extents below the ceiling of the draft, from the highest down.
// Appends also the fixed extents in the draft's way, and removes their parts from the placed ones.
// The result is disjoint and sorted by offset. It has all extents above the returned floor.
std::int64_t OneWayPlacer::CollectBelowCeiling(std::uint32_t i, std::int64_t moment,
                                               std::size_t count,
                                               std::vector<OccupiedExtent>& extents) const {
  std::vector<OccupiedExtent> placed;
  auto next = placed_.lower_bound(lifetimes_.Ceiling(i));
  while (next != placed_.begin() && placed.size() < count) {
    placed.push_back(ExtentOf((--next)->second, moment));
  }
  std::reverse(placed.begin(), placed.end());
  const bool all = next == placed_.begin();
  const std::int64_t floor = all ? top_of_whole_ : placed.front().begin;
  auto place = std::partition_point(
      fixed_.crossing.begin(), fixed_.crossing.end(),
      [&](const FreeSpace::Obstacle& crossing) { return crossing.end <= floor; });
  const auto next_in_the_way = [&] {
    while (place != fixed_.crossing.end() && !IsInTheWay(place->owner, i)) ++place;
    return place != fixed_.crossing.end() && place->begin < lifetimes_.Ceiling(i);
  };
  for (OccupiedExtent extent : placed) {
    while (next_in_the_way() && place->begin < extent.end) {
      if (extent.begin < place->begin) {
        OccupiedExtent below = extent;
        below.end = place->begin;
        extents.push_back(below);
      }
      if (place->end >= extent.end) {  // `place` may reach into the next placed extent as well
        extent.begin = extent.end;
        break;
      }
      extent.begin = std::max(extent.begin, place->end);
      extents.push_back(
          {.begin = place->begin, .end = place->end, .owner = place->owner, .fixed = true});
      ++place;
    }
    if (extent.begin < extent.end) extents.push_back(extent);
  }
  for (; next_in_the_way(); ++place) {
    extents.push_back(
        {.begin = place->begin, .end = place->end, .owner = place->owner, .fixed = true});
  }
  return floor;
}

std::int64_t OneWayPlacer::ClearFor(std::uint32_t i, std::int64_t moment) {
  // A few extents from the top nearly always hold a window. If they do not, look at more.
  for (std::size_t count = kFirstExtents;; count *= 4) {
    std::vector<OccupiedExtent> extents;
    const std::int64_t floor = CollectBelowCeiling(i, moment, count, extents);
    work_ += static_cast<std::int64_t>(extents.size());
    const WindowChoice choice =
        CheapestWindow(extents, lifetimes_.Bytes(i), floor, lifetimes_.Ceiling(i));
    if (choice.offset_bytes >= 0) {
      for (std::size_t k = choice.first; k < choice.last; ++k) Clear(extents[k].owner, moment);
      return choice.offset_bytes;
    }
    if (floor == top_of_whole_) return FreeSpace::kNowhere;
  }
}

void OneWayPlacer::Clear(std::uint32_t i, std::int64_t moment) {
  Remove(i);
  if (IsAhead(i, moment)) {
    lifetimes_.BeginAt(i, moment + 1);
    // Backwards the draft keeps its place at the later moments.
    if (forwards()) meeting_[static_cast<std::size_t>(moment + 1)].push_back(i);
    return;
  }
  if (!forwards()) {
    // The tail keeps its place at the later moments.
    AddToMeet(lifetimes_.SplitAt(i, moment, Lifetimes::KeptPart::kTail));
    return;
  }
  AddToMeet(lifetimes_.SplitAt(i, moment, Lifetimes::KeptPart::kHead));
  // The head may now end before the tightest moment; then it was never alive there.
  if (lifetimes_[i].end <= tightest_) left_over_->push_back(i);
}

}  // namespace geminid::planner
