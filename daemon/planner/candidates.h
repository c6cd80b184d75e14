#ifndef GEMINID_DAEMON_PLANNER_CANDIDATES_H_
#define GEMINID_DAEMON_PLANNER_CANDIDATES_H_

#include <cstdint>
#include <vector>

#include "daemon/planner/contract/plan.h"
#include "daemon/planner/contract/trace.h"
#include "daemon/planner/problem/problem.h"
#include "daemon/planner/retention/residency_draft.h"
#include "daemon/planner/timeline/timeline.h"

namespace geminid::planner {

// A complete answer: what stays, where it lies, when it moves, and how long a step takes with it.
struct Candidate {
  std::vector<ResidencyDraft> drafts;
  std::uint64_t h2d_bytes = 0;
  std::uint64_t split_bytes = 0;
  StepPrediction prediction;
};

// Builds candidates and chooses the best: the fewest bytes, or of those that are as fast as the
// fastest, the fewest bytes. The work is bounded in counted operations, not in time, so that every
// rank chooses the same.
//
// `bounds` are the lower bounds of the plan; building ends when no candidate can be better.
Candidate BestCandidate(const Trace& trace, const PlannerOptions& options, const Problem& problem,
                        const Plan& bounds);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_CANDIDATES_H_
