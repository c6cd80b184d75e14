#ifndef GEMINID_DAEMON_PLANNER_PLACEMENT_ONE_WAY_PLACER_H_
#define GEMINID_DAEMON_PLANNER_PLACEMENT_ONE_WAY_PLACER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "daemon/planner/placement/cheapest_window.h"
#include "daemon/planner/placement/free_space.h"
#include "daemon/planner/placement/lifetimes.h"
#include "daemon/planner/retention/residency_draft.h"

namespace geminid::planner {

// One direction of an attempt (placement_attempt.h). The placer goes through the moments from the
// tightest one, forwards to the end of the iteration or backwards to its start. It places each
// draft when it meets the draft.
//
// If a draft finds no place and is not needed yet, its load waits. If the draft is needed, the
// placer clears the window that is cheapest to clear. An extent that is only loaded ahead is loaded
// later. A draft that only bridges a gap is split around the moment, at the price of a load.
class OneWayPlacer {
 public:
  enum class Direction { kForwards, kBackwards };

  // Drafts that may not be moved. `whole`: drafts that never leave, or that are alive both at the
  // tightest moment and over the boundary; they are stacked from the bottom. `crossing`: placed
  // drafts over the boundary, by offset.
  struct Fixed {
    const std::vector<std::uint32_t>& whole;
    const std::vector<FreeSpace::Obstacle>& crossing;
  };

  // `drafts` are the drafts that `lifetimes` measures.
  OneWayPlacer(Direction direction, FreeSpace::Prefer prefer, std::int64_t tightest,
               const Fixed& fixed, Lifetimes& lifetimes, std::vector<ResidencyDraft>& drafts);

  // Adds a draft that is placed at the tightest moment.
  void AddPlaced(std::uint32_t i);
  // Adds a draft to meet: its begin (forwards) or its end (backwards) is still ahead.
  void AddToMeet(std::uint32_t i);

  // Places all drafts, and adds those that found no place to `failed`. A split at a gap that
  // reaches back over the tightest moment leaves a part for the placer of the other direction, in
  // `left_over`.
  void Run(std::vector<std::uint32_t>& failed, std::vector<std::uint32_t>& left_over);

  // The number of operations so far, for a budget that does not depend on time.
  std::int64_t work() const { return work_; }

 private:
  using Indices = std::vector<std::uint32_t>;

  bool forwards() const { return direction_ == Direction::kForwards; }
  // The index at which a draft is met first, and the index at which it is gone.
  std::size_t MetAt(std::uint32_t i) const;
  std::size_t GoneAt(std::uint32_t i) const;
  bool IsInTheWay(std::uint32_t other, std::uint32_t i) const;
  bool IsAhead(std::uint32_t i, std::int64_t moment) const;

  void Sort(std::int64_t moment, Indices& met) const;
  void PassTo(std::int64_t moment);
  void Meet(std::uint32_t i, std::int64_t moment);
  std::int64_t Find(std::uint32_t i) const;
  void Take(std::uint32_t i, std::int64_t offset_bytes);
  void Remove(std::uint32_t i);
  std::int64_t ClearFor(std::uint32_t i, std::int64_t moment);
  std::int64_t CollectBelowCeiling(std::uint32_t i, std::int64_t moment, std::size_t count,
                                   std::vector<OccupiedExtent>& extents) const;
  OccupiedExtent ExtentOf(std::uint32_t i, std::int64_t moment) const;
  void Clear(std::uint32_t i, std::int64_t moment);

  const Direction direction_;
  const FreeSpace::Prefer prefer_;
  const std::int64_t tightest_;
  const Fixed fixed_;
  Lifetimes& lifetimes_;
  std::vector<ResidencyDraft>& drafts_;
  FreeSpace space_;
  std::int64_t top_of_whole_ = 0;
  std::map<std::int64_t, std::uint32_t> placed_;  // by offset; drafts that may be cleared
  std::vector<Indices> meeting_, leaving_, returning_;
  Indices* left_over_ = nullptr;
  std::int64_t work_ = 0;
};

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_PLACEMENT_ONE_WAY_PLACER_H_
