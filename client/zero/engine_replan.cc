// Whether the plan still fits, and what follows if not: the same on every rank.
#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "client/zero/engine_impl.h"

namespace geminid::zero {
namespace {

// Stands for a prediction of no time at all, which no step can be compared with.
constexpr double kLeastPredictedSeconds = 1e-9;

}  // namespace

// --- what a micro-batch shows --------------------------------------------------------------------

void EngineImpl::BeginMeasuring() {
  if (micro_batch_ == 0) {
    planned_seconds_ = 0;
    planned_micro_batches_ = 0;
  }
  order_changed_ = false;
  workspace_grew_ = false;
  update_stall_ = session_->Stalls()[static_cast<size_t>(shm::StallCause::kUpdate)];
  micro_batch_began_ = clock_();
  moment_ended_ = micro_batch_began_;
}

// After the last moment. A plan knows nothing of the update that the first operators wait for.
void EngineImpl::EndMeasuring() {
  if (!following_plan_) return;
  if (moment_ < planned_chunks_.size()) {
    order_changed_ = true;  // shorter than the sample: what was gathered for the rest must go
    return;
  }
  const absl::Duration update_stall =
      session_->Stalls()[static_cast<size_t>(shm::StallCause::kUpdate)] - update_stall_;
  planned_seconds_ += absl::ToDoubleSeconds(moment_ended_ - micro_batch_began_ - update_stall);
  ++planned_micro_batches_;
}

// Of a micro-batch with the operators of the plan.
uint64_t EngineImpl::PeakExcessBytes() const {
  const std::vector<Moment> moments = recorder_.Moments();
  uint64_t excess_bytes = 0;
  for (size_t m = 0; m < std::min(moments.size(), first_workspace_bytes_.size()); ++m) {
    const uint64_t bytes = moments[m].workspace_bytes;
    if (bytes > first_workspace_bytes_[m]) {
      excess_bytes = std::max(excess_bytes, bytes - first_workspace_bytes_[m]);
    }
  }
  return excess_bytes;
}

// --- what follows --------------------------------------------------------------------------------

// The worst of all ranks counts, so that all judge alike: all follow the plan, or none does. Times
// are judged at the end of a step, as the mean of its micro-batches: the first one differs.
absl::StatusOr<ReplanCause> EngineImpl::JudgePlan() {
  const bool step_ends = micro_batch_ == options_.accumulate;
  const double seconds = step_ends && planned_micro_batches_ > 0
                             ? planned_seconds_ / static_cast<double>(planned_micro_batches_)
                             : 0;
  const uint64_t excess_bytes = workspace_grew_ && !order_changed_ ? PeakExcessBytes() : 0;
  std::vector<double> worst = {order_changed_ ? 1.0 : 0.0, workspace_grew_ ? 1.0 : 0.0,
                               static_cast<double>(excess_bytes), seconds};
  absl::Status status = Waited(StallCause::kCollective, [&] {
    return control_communicator_->AllReduce(worst, worst, collectives::ReduceOp::kMax);
  });
  if (!status.ok()) return status;
  if (!controller_.has_value()) return ReplanCause::kNone;
  const bool order_changed = worst[0] > 0;
  const bool grew = worst[1] > 0;
  const bool resample = order_changed || grew;
  if (!resample && !step_ends) return ReplanCause::kNone;
  const ReplanCause cause =
      controller_->OnStep({.step_seconds = resample ? 0 : worst[3],
                           .peak_excess_bytes = static_cast<uint64_t>(worst[2]),
                           .access_order_changed = order_changed});
  if (order_changed) return ReplanCause::kAccessOrder;
  return grew ? ReplanCause::kPeak : cause;
}

absl::Status EngineImpl::PlanAgain(ReplanCause cause) {
  GEMINID_RETURN_IF_ERROR(mover_->WaitIdle());
  if (cause == ReplanCause::kSlower || cause == ReplanCause::kFaster) {
    ++replans_[static_cast<size_t>(cause)];
    return PlanFromRecording();
  }
  // The plan's operators or extents are wrong: the next micro-batch is a new sample.
  resampled_for_ = cause;
  following_plan_ = false;
  plan_.reset();
  DropIdleChunks();
  return absl::OkStatus();
}

// The operators are the plan's, only their times are others: no sample is needed.
absl::Status EngineImpl::PlanFromRecording() {
  Trace trace = MakeTrace();
  for (size_t m = 0; m < trace.moments.size(); ++m) {
    trace.moments[m].uses = planned_moments_[m].uses;  // an operator may use less than planned
  }
  GEMINID_RETURN_IF_ERROR(Waited(StallCause::kCollective, [&] { return AgreeOnTrace(&trace); }));
  absl::StatusOr<Plan> plan = RequestPlanWithMargin(&trace);
  if (!plan.ok()) return plan.status();
  GEMINID_RETURN_IF_ERROR(PutInForce(trace, *std::move(plan)));
  return TellController();
}

absl::Status EngineImpl::TellController() {
  const double seconds = std::max(plan_->predicted_step_seconds, kLeastPredictedSeconds);
  if (!controller_.has_value()) {
    absl::StatusOr<ReplanController> controller = ReplanController::Create({}, seconds);
    if (!controller.ok()) return controller.status();
    controller_ = *std::move(controller);
  }
  controller_->OnReplanned(seconds);
  return absl::OkStatus();
}

}  // namespace geminid::zero
