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

// A complete candidate plan: which chunks stay, at which offsets, when loads are issued, and the
// predicted time of a step.
struct Candidate {
  std::vector<ResidencyDraft> drafts;
  std::uint64_t h2d_bytes = 0;
  std::uint64_t split_bytes = 0;
  StepPrediction prediction;
};

// Builds candidates and chooses the best. For Objective::kBytes it has the fewest bytes. For
// kStepTime it has the fewest bytes among the candidates that are as fast as the fastest. A budget
// of counted operations bounds the work, not a time, so that every rank chooses the same candidate.
//
// `bounds` are the lower bounds of the plan. Building ends when no further candidate can be
// better.
Candidate BestCandidate(const Trace& trace, const PlannerOptions& options, const Problem& problem,
                        const Plan& bounds);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_CANDIDATES_H_
