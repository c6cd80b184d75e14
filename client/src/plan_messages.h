// Converts traces and plans to messages and back.
#ifndef GEMINID_CLIENT_SRC_PLAN_MESSAGES_H_
#define GEMINID_CLIENT_SRC_PLAN_MESSAGES_H_

#include "absl/status/statusor.h"
#include "geminid/plan.h"
#include "geminid/v1/plan.pb.h"

namespace geminid {

v1::MakePlanRequest ToMessage(const Trace& trace, const PlanRequest& request);

// INTERNAL if the plan names chunks or moments that `trace` does not have.
absl::StatusOr<Plan> FromMessage(const v1::Plan& message, const Trace& trace);

}  // namespace geminid

#endif  // GEMINID_CLIENT_SRC_PLAN_MESSAGES_H_
