#ifndef GEMINID_DAEMON_PLANNER_PLACEMENT_EXTEND_DRAINS_H_
#define GEMINID_DAEMON_PLANNER_PLACEMENT_EXTEND_DRAINS_H_

#include <vector>

#include "daemon/planner/contract/plan.h"
#include "daemon/planner/problem/problem.h"
#include "daemon/planner/retention/residency_draft.h"

namespace geminid::planner {

// Lets gradients keep their extents for as long as nothing else wants them: computation then never
// waits for a gradient whose place nobody needs yet. The end of each drain moves to the first of:
// the next draft that takes a byte of the extent, the workspace that does, the chunk's own next
// draft, the end of the iteration if the optimizer changes the weights. Costs no load. O(S log S).
void ExtendDrains(const PlannerOptions& options, const Problem& problem,
                  std::vector<ResidencyDraft>& drafts);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_PLACEMENT_EXTEND_DRAINS_H_
