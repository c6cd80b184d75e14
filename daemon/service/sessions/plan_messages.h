// Converts traces and plans between messages of the wire and values of the planner.
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_PLAN_MESSAGES_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_PLAN_MESSAGES_H_

#include "absl/status/statusor.h"
#include "daemon/core/engine/engine.h"
#include "daemon/planner/contract/plan.h"
#include "daemon/planner/contract/trace.h"
#include "geminid/v1/plan.pb.h"

namespace geminid::service {

absl::StatusOr<planner::PlannerOptions> OptionsOf(const v1::MakePlanRequest& request);
v1::Plan ToMessage(const planner::Trace& trace, const planner::Plan& plan);
// The plan in the message, without options, residencies and the order of loads by deadline. Unknown
// causes of stalls become kLink.
planner::Plan PlanFromMessage(const v1::Plan& message);

// When each chunk is used, for the choice of what to evict.
core::NextUseTable NextUses(const planner::Trace& trace);

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_PLAN_MESSAGES_H_
