#ifndef GEMINID_DAEMON_PLANNER_TIMELINE_TIMELINE_H_
#define GEMINID_DAEMON_PLANNER_TIMELINE_TIMELINE_H_

#include <cstdint>
#include <vector>

#include "daemon/planner/problem/problem.h"
#include "daemon/planner/retention/residency_draft.h"

// When loads are issued, and how long a step then takes.

namespace geminid::planner {

// Moves the begin of every draft that needs a load back to the moment that issues the load.
//
// The latest starts follow from the deadlines, backwards at the speed of the link (earliest
// deadline first in reverse), as if computation never stalled. A load is wanted at the last moment
// that starts before its latest start less the slack. It is issued there, or as soon after as the
// options, the iteration boundary, the chunk's previous draft and the free bytes allow. Earlier
// deadlines choose first. Nothing is evicted for a load. `unlimited_space`: every chunk has a place
// of its own. O(S log N) for S drafts.
void ScheduleLoads(const Trace& trace, const PlannerOptions& options, const Problem& problem,
                   bool unlimited_space, std::vector<ResidencyDraft>& drafts);

// Indices of the drafts that are loaded, by deadline, then by item.
std::vector<std::uint32_t> LoadOrder(const std::vector<ResidencyDraft>& drafts);

struct StepPrediction {
  double step_seconds = 0;
  int iterations = 0;  // how many were run until their time repeated
  std::vector<Stall> stalls;
};

// Runs iterations on the link model until one takes as long as the previous one, at most four, and
// reports the last. Loads follow one another in issue order, and so do gradients in the other
// direction. Computation waits for the loads that are due and for the gradients whose space is
// promised. O(S log S).
StepPrediction PredictStep(const Trace& trace, const Problem& problem,
                           const std::vector<ResidencyDraft>& drafts);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_TIMELINE_TIMELINE_H_
