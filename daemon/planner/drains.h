#ifndef GEMINID_DAEMON_PLANNER_DRAINS_H_
#define GEMINID_DAEMON_PLANNER_DRAINS_H_

#include <vector>

#include "daemon/planner/plan.h"
#include "daemon/planner/problem.h"
#include "daemon/planner/stays.h"

namespace geminid::planner {

// Lets gradients keep their extents for as long as nothing else wants them: computation then never
// waits for a gradient whose place nobody needs yet. The end of each drain moves to the first of:
// the next stay that takes a byte of the extent, the workspace that does, the chunk's own next
// stay, the end of the iteration if the optimizer changes the weights. Costs no load. O(S log S).
void ExtendDrains(const PlannerOptions& options, const Problem& problem, std::vector<Stay>& stays);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_DRAINS_H_
