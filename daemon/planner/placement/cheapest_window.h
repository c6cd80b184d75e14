#ifndef GEMINID_DAEMON_PLANNER_PLACEMENT_CHEAPEST_WINDOW_H_
#define GEMINID_DAEMON_PLANNER_PLACEMENT_CHEAPEST_WINDOW_H_

#include <compare>
#include <cstdint>
#include <vector>

namespace geminid::planner {

// The cost of clearing an extent: the bytes to load again, and the bytes whose load is delayed.
// Compared in this order.
struct ClearCost {
  std::int64_t reload_bytes = 0;
  std::int64_t delayed_bytes = 0;
  friend auto operator<=>(const ClearCost&, const ClearCost&) = default;
};

// An occupied extent: [begin, end) in bytes.
struct OccupiedExtent {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::uint32_t owner = 0;
  bool fixed = false;  // cannot be cleared
  ClearCost cost = {};
};

struct WindowChoice {
  std::int64_t offset_bytes = -1;  // -1: no window is free of fixed extents
  // The extents to clear: [first, last) in `taken`.
  std::size_t first = 0;
  std::size_t last = 0;
};

// The window of `size_bytes` in [floor_bytes, ceiling_bytes) that is cheapest to clear; the lowest
// of equals. `taken` is disjoint and sorted. The best window begins or ends at an extent or at an
// end of the space: any other could move there without touching more extents. O(n).
WindowChoice CheapestWindow(const std::vector<OccupiedExtent>& taken, std::int64_t size_bytes,
                            std::int64_t floor_bytes, std::int64_t ceiling_bytes);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_PLACEMENT_CHEAPEST_WINDOW_H_
