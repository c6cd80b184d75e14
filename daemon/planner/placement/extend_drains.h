#ifndef GEMINID_DAEMON_PLANNER_PLACEMENT_EXTEND_DRAINS_H_
#define GEMINID_DAEMON_PLANNER_PLACEMENT_EXTEND_DRAINS_H_

#include <vector>

#include "daemon/planner/contract/plan.h"
#include "daemon/planner/problem/problem.h"
#include "daemon/planner/retention/residency_draft.h"

namespace geminid::planner {

// Lets gradients occupy their extents until the space is needed, so that computation waits for no
// gradient whose extent is not needed yet. Each drain ends at the first of:
// - the next draft that takes a byte of the extent;
// - the workspace reaching the extent;
// - the chunk's own next draft;
// - the end of the iteration, if the optimizer changes the weights.
// Adds no load. O(S log S).
void ExtendDrains(const PlannerOptions& options, const Problem& problem,
                  std::vector<ResidencyDraft>& drafts);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_PLACEMENT_EXTEND_DRAINS_H_
