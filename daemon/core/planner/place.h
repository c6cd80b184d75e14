#ifndef GEMINID_DAEMON_CORE_PLANNER_PLACE_H_
#define GEMINID_DAEMON_CORE_PLANNER_PLACE_H_

#include <vector>

#include "daemon/core/planner/problem.h"
#include "daemon/core/planner/stays.h"

namespace geminid::planner {

// Gives every stay one offset for its whole life, below the capacity of each of its moments and
// apart from every other stay alive with it.
//
// Stays alive at the moment of least capacity are stacked from the bottom; from there one sweep
// goes forwards and one backwards through time, each placing stays as it meets them. While capacity
// only grows away from that moment (activations pile up in forward and shrink in backward) and
// sizes are equal, a stay met always finds a slot: whatever is met later lives where capacity is no
// smaller. Stays over the iteration boundary, where the sweeps meet, are placed ahead of them.
// Where this fails it is tried again with low offsets preferred, and with the sweeps meeting at the
// moment of most capacity.
//
// A stay that finds no place is relaxed and all are placed again: first its prefetch is given up,
// then it is split at its longest gap (one more load), then its drain is cut, and at last
// everything alive at its moment is split around it. Ends after a fixed number of rounds, if need
// be with every use a stay of its own, which always fits. Never overlaps. O(S (log S + free
// ranges)) a round, which is nearly always the only one.
void PlaceStays(const Problem& problem, std::vector<Stay>& stays);

// Gives every item a place of its own; the items must fit below the least capacity together.
void PlaceApart(const Problem& problem, std::vector<Stay>& stays);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_CORE_PLANNER_PLACE_H_
