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

// One direction of an attempt (placement_attempt.h): goes through the moments from the tightest
// moment, forwards to the end of the iteration or backwards to its start, and places each draft
// when it meets it.
//
// A draft that finds no place waits, if it is not needed yet. If it is, the window that is cheapest
// to clear is cleared for it: extents that are only loaded ahead are loaded later, and if that is
// not enough, a draft that only bridges a gap is split around the moment, at the price of a load.
class OneWayPlacer {
 public:
  enum class Direction { kForwards, kBackwards };

  // What may not be moved: drafts that never leave or are alive at the tightest moment and over the
  // boundary
  // (`whole`, stacked from the bottom), and placed drafts over the boundary, by offset.
  struct Fixed {
    const std::vector<std::uint32_t>& whole;
    const std::vector<FreeSpace::Obstacle>& crossing;
  };

  // `drafts` are those that `lifetimes` measures.
  OneWayPlacer(Direction direction, FreeSpace::Prefer prefer, std::int64_t tightest,
               const Fixed& fixed, Lifetimes& lifetimes, std::vector<ResidencyDraft>& drafts);

  // A draft placed at the tightest moment.
  void AddPlaced(std::uint32_t i);
  // A draft to meet: forwards its begin, backwards its end is still ahead.
  void AddToMeet(std::uint32_t i);

  // Places everything; what found no place is added to `failed`. A split at a gap that reaches back
  // over the tightest moment leaves a part for the placer of the other direction: `left_over`.
  void Run(std::vector<std::uint32_t>& failed, std::vector<std::uint32_t>& left_over);

  // Operations so far, for a budget that does not depend on time.
  std::int64_t work() const { return work_; }

 private:
  using Indices = std::vector<std::uint32_t>;

  bool forwards() const { return direction_ == Direction::kForwards; }
  // Where the lifetime of a draft is first met, and the index of what is gone when it ends.
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
                                   std::vector<Taken>& extents) const;
  Taken ExtentOf(std::uint32_t i, std::int64_t moment) const;
  void Clear(std::uint32_t i, std::int64_t moment);

  const Direction direction_;
  const FreeSpace::Prefer prefer_;
  const std::int64_t tightest_;
  const Fixed fixed_;
  Lifetimes& lifetimes_;
  std::vector<ResidencyDraft>& drafts_;
  FreeSpace space_;
  std::int64_t top_of_whole_ = 0;
  std::map<std::int64_t, std::uint32_t> placed_;  // by offset; what may be cleared
  std::vector<Indices> meeting_, leaving_, returning_;
  Indices* left_over_ = nullptr;
  std::int64_t work_ = 0;
};

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_PLACEMENT_ONE_WAY_PLACER_H_
