#ifndef GEMINID_DAEMON_PLANNER_TIERS_VALIDATE_H_
#define GEMINID_DAEMON_PLANNER_TIERS_VALIDATE_H_

#include "absl/status/status.h"
#include "daemon/planner/tiers/tier_plan.h"

namespace geminid::planner {

// INVALID_ARGUMENT naming the field.
absl::Status ValidateTierProblem(const TierProblem& problem);

// INVALID_ARGUMENT if a decision is not allowed for its item.
absl::Status CheckDecisions(const TierProblem& problem, const Decisions& decisions);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_TIERS_VALIDATE_H_
