#ifndef GEMINID_DAEMON_PLANNER_BOUND_STEP_BOUND_H_
#define GEMINID_DAEMON_PLANNER_BOUND_STEP_BOUND_H_

#include <cstdint>
#include <vector>

#include "daemon/planner/contract/plan.h"
#include "daemon/planner/contract/trace.h"
#include "daemon/planner/problem/problem.h"

// Lower bounds on the times of every plan. Time counts from the end of the last moment of the
// previous iteration. The bounds are those of machine scheduling with release times and tails
// (Carlier 1982): the work that must come before, the work that must come after, and the work
// between.

namespace geminid::planner {

// Element t: no plan starts moment t earlier. Element N: no plan ends the iteration earlier.
//
// Moments run one after another. Take a moment s and a later moment t. Some loads for t cannot
// be issued by the end of s, so they lie between s and t:
// - loads of weights that the optimizer has yet to change (s is the boundary);
// - loads whose bytes find no space at s or later beside the chunks that the moments use.
//   Farthest-first eviction of bytes (byte_bound.h) gives their least amount, for all t at once.
// s runs over the moment before t, the boundary, the moment of least capacity, and a few between.
// If the optimizer waits for gradients, those of a moment and of later ones must leave after it.
// O(G log G).
std::vector<double> EarliestStarts(const Trace& trace, const PlannerOptions& options,
                                   const Problem& problem);

// The larger of `earliest.back()` and the link's time for the bytes of an iteration:
// `least_up_bytes` and the gradients, in both directions at once.
double LeastStepSeconds(const Trace& trace, const Problem& problem,
                        const std::vector<double>& earliest, std::uint64_t least_up_bytes);

// Sets unavoidable_seconds of a plan's stalls. `stalls` is in the order of moments.
void MarkUnavoidable(const Trace& trace, const std::vector<double>& earliest,
                     std::vector<Stall>& stalls);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_BOUND_STEP_BOUND_H_
