#ifndef GEMINID_DAEMON_PLANNER_PLACE_H_
#define GEMINID_DAEMON_PLANNER_PLACE_H_

#include <cstdint>
#include <vector>

#include "daemon/planner/problem.h"
#include "daemon/planner/stays.h"

namespace geminid::planner {

// Gives every stay one offset for its whole life, below the capacity of each of its moments and
// apart from every other stay alive with it.
//
// Stays alive at the moment of least capacity are stacked from the bottom; from there one walk goes
// forwards and one backwards through time, each placing stays as it meets them (walk.h). While
// capacity only grows away from that moment (activations pile up in forward and shrink in backward)
// and sizes are equal, a stay met always finds a slot: whatever is met later lives where capacity
// is no smaller. Stays over the iteration boundary, where the walks end, are placed ahead of them.
// Where a stay had to be split the walks are tried again with their end at the moment of most
// capacity, and with low offsets preferred; the least bytes win.
//
// What the walks cannot make room for is relaxed and all are placed again: prefetch is given up,
// then the stay is split, then its drain is cut, and at last everything alive at its moment is
// split around it. Ends after a fixed number of rounds, if need be with every use a stay of its
// own, which always fits. Never overlaps. Adds its operations to `work` and begins no further
// variant once that exceeds `work_limit`. O(S (log S + sqrt(free ranges))) a variant, and 128
// extents or a little more for each stay that needs room made.
void PlaceStays(const Problem& problem, std::int64_t work_limit, std::vector<Stay>& stays,
                std::int64_t& work);

// Gives every item a place of its own; the items must fit below the least capacity together.
void PlaceApart(const Problem& problem, std::vector<Stay>& stays);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_PLACE_H_
