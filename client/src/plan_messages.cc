#include "client/src/plan_messages.h"

#include "proto/messages/plan_messages.h"
#include "proto/messages/trace_messages.h"

namespace geminid {

v1::MakePlanRequest ToMessage(const Trace& trace, const PlanRequest& request) {
  static_assert(static_cast<int>(PlacementPolicy::kDevice) == v1::PLACEMENT_POLICY_DEVICE);
  static_assert(static_cast<int>(PlacementPolicy::kCpu) == v1::PLACEMENT_POLICY_CPU);
  static_assert(static_cast<int>(PlacementPolicy::kAuto) == v1::PLACEMENT_POLICY_AUTO);
  v1::MakePlanRequest message;
  *message.mutable_trace() = messages::TraceToMessage(trace);
  message.set_policy(static_cast<v1::PlacementPolicy>(request.policy));
  message.set_weights_change_between_iterations(request.weights_change_between_iterations);
  message.set_drain_moments(request.drain_moments);
  message.set_max_lookahead_moments(request.max_lookahead_moments);
  return message;
}

absl::StatusOr<Plan> FromMessage(const v1::Plan& message, const Trace& trace) {
  if (!messages::IsWithin(message, trace.chunks.size(), trace.moments.size())) {
    return absl::InternalError("MakePlan: the plan names chunks or moments that the trace lacks");
  }
  Plan plan;
  messages::ReadMoments(message, &plan.moments);
  messages::ReadPlacements(message, &plan.resident_at_start);
  plan.everything_fits = message.everything_fits();
  plan.transfer_bytes = message.transfer_bytes();
  plan.transfer_bytes_lower_bound = message.transfer_bytes_lower_bound();
  plan.gradient_bytes = message.gradient_bytes();
  plan.predicted_step_seconds = message.predicted_step_seconds();
  plan.step_lower_bound_seconds = message.step_lower_bound_seconds();
  for (const v1::PlannedStall& stall : message.stalls()) {
    plan.stalls.push_back(
        {stall.moment(), stall.seconds(), stall.cause(), stall.unavoidable_seconds()});
  }
  plan.trace_hash = message.trace_hash();
  plan.plan_hash = message.plan_hash();
  plan.explanation = message.explanation();
  return plan;
}

}  // namespace geminid
