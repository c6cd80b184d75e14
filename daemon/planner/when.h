#ifndef GEMINID_DAEMON_PLANNER_WHEN_H_
#define GEMINID_DAEMON_PLANNER_WHEN_H_

#include <cstdint>
#include <vector>

#include "daemon/planner/problem.h"
#include "daemon/planner/stays.h"

// When loads are issued, and what the step then takes.

namespace geminid::planner {

// Moves the begin of every stay that needs a load back to the moment that issues it.
//
// The latest starts follow from the deadlines backwards at the speed of the link (earliest deadline
// first in reverse), as if computation never stalled; a load is wanted at the last moment that
// starts before its latest start less the slack. It is issued there or as soon after as the
// options, the iteration boundary, the chunk's previous stay and the free bytes allow, the earlier
// deadline choosing first. Nothing is evicted for it. `unlimited_space`: every chunk has a place of
// its own. O(S log N) for S stays.
void ScheduleLoads(const Trace& trace, const PlannerOptions& options, const Problem& problem,
                   bool unlimited_space, std::vector<Stay>& stays);

// Indices of the stays that are loaded, by deadline, then by item.
std::vector<std::uint32_t> LoadOrder(const std::vector<Stay>& stays);

struct Timeline {
  double step_seconds = 0;
  std::vector<Stall> stalls;
};

// Runs iterations on the link model until one takes as long as the one before, at most four, and
// reports the last: loads one after another in issue order, gradients likewise on the other
// direction, computation waiting for the loads due and for the gradients whose space is promised
// free. O(S log S).
Timeline PredictTimeline(const Trace& trace, const Problem& problem,
                         const std::vector<Stay>& stays);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_WHEN_H_
