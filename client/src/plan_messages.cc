#include "client/src/plan_messages.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace geminid {
namespace {

void FillTrace(const Trace& trace, v1::Trace* message) {
  message->set_arena_bytes(trace.arena_bytes);
  for (const TraceChunk& chunk : trace.chunks) {
    v1::TraceChunk* out = message->add_chunks();
    out->set_chunk(static_cast<uint32_t>(chunk.chunk));
    out->set_device_bytes(chunk.device_bytes);
    out->set_transfer_bytes(chunk.transfer_bytes);
    out->set_gradient_bytes(chunk.gradient_bytes);
    out->set_frozen(chunk.frozen);
  }
  for (const TraceMoment& moment : trace.moments) {
    v1::TraceMoment* out = message->add_moments();
    out->set_workspace_bytes(moment.workspace_bytes);
    out->set_compute_seconds(moment.compute_seconds);
    for (const TraceUse& use : moment.uses) {
      v1::TraceUse* used = out->add_uses();
      used->set_index(use.index);
      used->set_invalidates(use.invalidates);
    }
  }
  v1::LinkModel* link = message->mutable_link();
  link->set_host_to_device_bytes_per_second(trace.link.host_to_device_bytes_per_second);
  link->set_device_to_host_bytes_per_second(trace.link.device_to_host_bytes_per_second);
  link->set_latency_seconds(trace.link.latency_seconds);
  link->set_both_directions_share(trace.link.both_directions_share);
  link->set_uplink_bytes_per_second(trace.link.uplink_bytes_per_second);
  link->set_ranks_per_uplink(trace.link.ranks_per_uplink);
}

PlannedMoment MomentOf(const v1::PlannedMoment& message) {
  PlannedMoment moment;
  for (const v1::PlannedLoad& load : message.loads()) {
    moment.loads.push_back({load.index(), load.device_offset(), load.deadline_moment()});
  }
  for (const v1::PlannedDrop& drop : message.drops()) {
    moment.drops.push_back({drop.index(), drop.becomes_gradient(), drop.free_moment()});
  }
  return moment;
}

// Indices are used without further checks.
bool IsWithin(const Plan& plan, const Trace& trace) {
  const auto known = [&](const auto& item) { return item.index < trace.chunks.size(); };
  return plan.moments.size() <= trace.moments.size() &&
         std::all_of(plan.moments.begin(), plan.moments.end(),
                     [&](const PlannedMoment& moment) {
                       return std::all_of(moment.loads.begin(), moment.loads.end(), known) &&
                              std::all_of(moment.drops.begin(), moment.drops.end(), known);
                     }) &&
         std::all_of(plan.resident_at_start.begin(), plan.resident_at_start.end(), known);
}

}  // namespace

v1::MakePlanRequest ToMessage(const Trace& trace, const PlanRequest& request) {
  static_assert(static_cast<int>(PlacementPolicy::kDevice) == v1::PLACEMENT_POLICY_DEVICE);
  static_assert(static_cast<int>(PlacementPolicy::kCpu) == v1::PLACEMENT_POLICY_CPU);
  static_assert(static_cast<int>(PlacementPolicy::kAuto) == v1::PLACEMENT_POLICY_AUTO);
  v1::MakePlanRequest message;
  FillTrace(trace, message.mutable_trace());
  message.set_policy(static_cast<v1::PlacementPolicy>(request.policy));
  message.set_weights_change_between_iterations(request.weights_change_between_iterations);
  message.set_drain_moments(request.drain_moments);
  message.set_max_lookahead_moments(request.max_lookahead_moments);
  return message;
}

absl::StatusOr<Plan> FromMessage(const v1::Plan& message, const Trace& trace) {
  Plan plan;
  for (const v1::PlannedMoment& moment : message.moments()) {
    plan.moments.push_back(MomentOf(moment));
  }
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
  for (const v1::PlannedPlacement& placement : message.resident_at_start()) {
    plan.resident_at_start.push_back({placement.index(), placement.device_offset()});
  }
  if (!IsWithin(plan, trace)) {
    return absl::InternalError("MakePlan: the plan names chunks or moments that the trace lacks");
  }
  return plan;
}

}  // namespace geminid
