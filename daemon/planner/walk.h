#ifndef GEMINID_DAEMON_PLANNER_WALK_H_
#define GEMINID_DAEMON_PLANNER_WALK_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "daemon/planner/cheapest_window.h"
#include "daemon/planner/free_space.h"
#include "daemon/planner/lives.h"
#include "daemon/planner/stays.h"

namespace geminid::planner {

// One direction of a sweep (sweep.h): walks through the moments from the valley, forwards to the
// end of the iteration or backwards to its start, and places each stay when it meets it.
//
// A stay that finds no place waits, if it is not needed yet. If it is, the window that is cheapest
// to clear is cleared for it: extents that are only loaded ahead are loaded later, and if that is
// not enough, a stay that only bridges a gap is split around the moment, at the price of a load.
class Walk {
 public:
  enum class Direction { kForwards, kBackwards };

  // What may not be moved: stays that never leave or are alive at the valley and over the boundary
  // (`whole`, stacked from the bottom), and placed stays over the boundary, by offset.
  struct Fixed {
    const std::vector<std::uint32_t>& whole;
    const std::vector<FreeSpace::Obstacle>& crossing;
  };

  // `stays` are those that `lives` measures.
  Walk(Direction direction, FreeSpace::Prefer prefer, std::int64_t valley, const Fixed& fixed,
       Lives& lives, std::vector<Stay>& stays);

  // A stay placed at the valley.
  void AddPlaced(std::uint32_t i);
  // A stay to meet: forwards its begin, backwards its end is still ahead.
  void AddToMeet(std::uint32_t i);

  // Places everything; what found no place is added to `failed`. A split at a gap that reaches back
  // over the valley leaves a part for the walk in the other direction: `left_over`.
  void Run(std::vector<std::uint32_t>& failed, std::vector<std::uint32_t>& left_over);

  // Operations so far, for a budget that does not depend on time.
  std::int64_t work() const { return work_; }

 private:
  using Indices = std::vector<std::uint32_t>;

  bool forwards() const { return direction_ == Direction::kForwards; }
  // Where the life of a stay is first met, and the index of what is gone when it ends.
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
  const std::int64_t valley_;
  const Fixed fixed_;
  Lives& lives_;
  std::vector<Stay>& stays_;
  FreeSpace space_;
  std::int64_t top_of_whole_ = 0;
  std::map<std::int64_t, std::uint32_t> placed_;  // by offset; what may be cleared
  std::vector<Indices> meeting_, leaving_, returning_;
  Indices* left_over_ = nullptr;
  std::int64_t work_ = 0;
};

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_WALK_H_
