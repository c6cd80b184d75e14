#include "daemon/service/sessions/plan_messages.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "proto/messages/plan_messages.h"
#include "proto/shm/limits.h"

namespace geminid::service {
namespace {

planner::StallCause CauseOf(const std::string& name) {
  using planner::StallCause;
  for (const StallCause cause :
       {StallCause::kSpace, StallCause::kLink, StallCause::kIterationBoundary,
        StallCause::kLookahead, StallCause::kDrain}) {
    if (name == planner::StallCauseName(cause)) return cause;
  }
  return StallCause::kLink;
}

}  // namespace

absl::StatusOr<planner::PlannerOptions> OptionsOf(const v1::MakePlanRequest& request) {
  planner::PlannerOptions options;
  switch (request.policy()) {
    case v1::PLACEMENT_POLICY_DEVICE:
      options.policy = planner::Policy::kDevice;
      break;
    case v1::PLACEMENT_POLICY_CPU:
      options.policy = planner::Policy::kCpu;
      break;
    case v1::PLACEMENT_POLICY_UNSPECIFIED:
    case v1::PLACEMENT_POLICY_AUTO:
      options.policy = planner::Policy::kAuto;
      break;
    default:
      return absl::InvalidArgumentError(absl::StrCat("placement policy ",
                                                     static_cast<int>(request.policy()),
                                                     " is not known; use device, cpu or auto"));
  }
  options.weights_change_between_iterations = request.weights_change_between_iterations();
  options.drain_moments = request.drain_moments();
  options.alignment_bytes = shm::kSlotBytes;  // what the arena hands out
  if (request.max_lookahead_moments() > 0) {
    options.max_lookahead_moments = request.max_lookahead_moments();
  }
  return options;
}

v1::Plan ToMessage(const planner::Trace& trace, const planner::Plan& plan) {
  v1::Plan message;
  for (const planner::Step& step : plan.steps) {
    v1::PlannedMoment* moment = message.add_moments();
    for (const planner::Load& load : step.loads) {
      v1::PlannedLoad* to = moment->add_loads();
      to->set_index(load.chunk);
      to->set_device_offset(load.device_offset);
      to->set_deadline_moment(load.deadline_moment);
    }
    for (const planner::Drop& drop : step.drops) {
      v1::PlannedDrop* to = moment->add_drops();
      to->set_index(drop.chunk);
      to->set_becomes_gradient(drop.becomes_gradient);
      to->set_free_moment(drop.free_moment);
    }
  }
  for (const planner::Placement& placement : plan.resident_at_start) {
    v1::PlannedPlacement* to = message.add_resident_at_start();
    to->set_index(placement.chunk);
    to->set_device_offset(placement.device_offset);
  }
  for (const planner::Stall& stall : plan.stalls) {
    v1::PlannedStall* to = message.add_stalls();
    to->set_moment(stall.moment);
    to->set_seconds(stall.seconds);
    to->set_cause(planner::StallCauseName(stall.cause));
    to->set_unavoidable_seconds(stall.unavoidable_seconds);
  }
  message.set_everything_fits(plan.everything_fits);
  message.set_transfer_bytes(plan.h2d_bytes);
  message.set_gradient_bytes(plan.d2h_bytes);
  message.set_transfer_bytes_lower_bound(plan.lower_bound_bytes);
  message.set_predicted_step_seconds(plan.predicted_step_seconds);
  message.set_step_lower_bound_seconds(plan.step_lower_bound_seconds);
  message.set_trace_hash(plan.trace_hash);
  message.set_plan_hash(planner::PlanHash(plan));
  message.set_explanation(planner::ExplainPlan(trace, plan));
  return message;
}

planner::Plan PlanFromMessage(const v1::Plan& message) {
  planner::Plan plan;
  messages::ReadMoments(message, &plan.steps);
  messages::ReadPlacements(message, &plan.resident_at_start);
  for (const v1::PlannedStall& stall : message.stalls()) {
    plan.stalls.push_back({.moment = stall.moment(),
                           .seconds = stall.seconds(),
                           .unavoidable_seconds = stall.unavoidable_seconds(),
                           .cause = CauseOf(stall.cause())});
  }
  plan.everything_fits = message.everything_fits();
  plan.h2d_bytes = message.transfer_bytes();
  plan.d2h_bytes = message.gradient_bytes();
  plan.lower_bound_bytes = message.transfer_bytes_lower_bound();
  plan.predicted_step_seconds = message.predicted_step_seconds();
  plan.step_lower_bound_seconds = message.step_lower_bound_seconds();
  plan.trace_hash = message.trace_hash();
  return plan;
}

core::NextUseTable NextUses(const planner::Trace& trace) {
  core::NextUseTable table;
  table.moments = static_cast<uint32_t>(trace.moments.size());
  for (const planner::Chunk& chunk : trace.chunks) {
    table.chunks.push_back({shm::ChunkId{static_cast<uint32_t>(chunk.id)}, {}});
  }
  for (uint32_t moment = 0; moment < table.moments; ++moment) {
    for (const planner::Use& use : trace.moments[moment].uses) {
      table.chunks[use.chunk].moments.push_back(moment);
    }
  }
  return table;
}

}  // namespace geminid::service
