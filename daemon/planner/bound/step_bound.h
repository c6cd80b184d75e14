#ifndef GEMINID_DAEMON_PLANNER_BOUND_STEP_BOUND_H_
#define GEMINID_DAEMON_PLANNER_BOUND_STEP_BOUND_H_

#include <cstdint>
#include <vector>

#include "daemon/planner/contract/plan.h"
#include "daemon/planner/contract/trace.h"
#include "daemon/planner/problem/problem.h"

// How early any plan can be. Time is counted from the end of the last moment of the iteration
// before. The bounds are those of a machine scheduling problem with release times and tails
// (Carlier 1982): what must pass before, what must pass after, and the work between.

namespace geminid::planner {

// For each moment, no plan starts it earlier; at index N, no plan ends the iteration earlier.
//
// Moments run one after another. Between the end of a moment s and the start of a later one t lie
// at least the loads that cannot have been issued by s: those of weights that the optimizer has yet
// to change (s is the boundary), and those of which the bytes have no room at s or later beside
// what the moments use. The least of these is farthest-first eviction of bytes (byte_bound.h),
// which is the least for all t at once. s runs over the moment before t, the boundary, the moment
// of least capacity, and a few between. After a moment, the gradients of it and of later ones must
// still leave if the optimizer waits for them. O(G log G).
std::vector<double> EarliestStarts(const Trace& trace, const PlannerOptions& options,
                                   const Problem& problem);

// The larger of `earliest.back()` and what the link needs for the bytes of an iteration:
// `least_up_bytes`, the gradients, or both at once.
double LeastStepSeconds(const Trace& trace, const Problem& problem,
                        const std::vector<double>& earliest, std::uint64_t least_up_bytes);

// Sets unavoidable_seconds of the stalls of a plan, which are by moment.
void MarkUnavoidable(const Trace& trace, const std::vector<double>& earliest,
                     std::vector<Stall>& stalls);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_BOUND_STEP_BOUND_H_
