// Judges whether the plan still fits, and replans if not: alike on all ranks.
#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "client/zero/step/step_plans.h"

namespace geminid::zero {
namespace {

// Replaces a prediction of zero, which no step time could be compared with.
constexpr double kLeastPredictedSeconds = 1e-9;

}  // namespace

// --- measurements of a micro-batch ---------------------------------------------------------------

void StepPlans::BeginMicroBatch(bool first_of_step) {
  micro_batch_ = {};
  times_.BeginMicroBatch(first_of_step, UpdateStall());
}

void StepPlans::EndOperators() {
  if (director_.following() && !micro_batch_.evaluated) times_.CountMicroBatch(UpdateStall());
}

absl::Status StepPlans::EndMicroBatch(int number, bool step_ends) {
  if (director_.outcome() == Director::Outcome::kFollowed) {
    uint64_t bound_bytes = plan()->transfer_bytes_lower_bound;
    if (setup_.weights_stay() && number == 1) {
      bound_bytes += BytesGatheredOnce(planned_trace_, setup_.staying_weights());
    }
    for (const uint32_t chunk : director_.there_at_start()) {
      bound_bytes -= planned_trace_.chunks[chunk].transfer_bytes;
    }
    tally_.CountPlanned(bound_bytes);
  } else if (director_.outcome() == Director::Outcome::kSampled) {
    tally_.CountSampled();
  }
  return PlanIfNeeded(step_ends);
}

// For a plan, an operator's time is that of its work, without its time in the stream's queue. It
// begins when the stream has passed the operator's waits, and ends at those of the next operator.
void StepPlans::BeginMoment(Stream* stream) {
  times_.BeginMoment();
  if (stream == nullptr || director_.evaluating()) return;
  times_.BeginOnStream(stream, director_.training_recorder().size() - 1);
}

void StepPlans::EndMoment() {
  const std::optional<absl::Duration> took = times_.EndMoment(director_.evaluating());
  if (!took.has_value()) return;
  Recorder& recorder = director_.recorder();
  recorder.NoteCompute(absl::ToDoubleSeconds(*took));
  recorder.NoteWorkspace(residency_.workspace().TakePeakExtent());
}

// Under a plan, growth means that the plan's sample was too small, so this micro-batch becomes the
// next sample. While sampling, growth is expected.
void StepPlans::NoteWorkspace(uint64_t extent_bytes) {
  if (director_.following() &&
      extent_bytes > director_.followed().workspace_bytes(director_.moment())) {
    NoteWorkspaceGrew();
  }
}

void StepPlans::NoteWorkspaceGrew() {
  if (director_.following() && !director_.evaluating()) micro_batch_.workspace_grew = true;
}

// The run's wait for updates so far.
absl::Duration StepPlans::UpdateStall() const {
  return setup_.session->Stalls()[static_cast<size_t>(shm::StallCause::kUpdate)];
}

// For a micro-batch with the operators of the plan.
uint64_t StepPlans::PeakExcessBytes() const {
  const std::vector<Moment> moments = director_.training_recorder().Moments();
  uint64_t excess_bytes = 0;
  for (size_t m = 0; m < std::min(moments.size(), first_workspace_bytes_.size()); ++m) {
    const uint64_t bytes = moments[m].workspace_bytes;
    if (bytes > first_workspace_bytes_[m]) {
      excess_bytes = std::max(excess_bytes, bytes - first_workspace_bytes_[m]);
    }
  }
  return excess_bytes;
}

// --- decisions -----------------------------------------------------------------------------------

// The worst of all ranks counts, so that all judge alike: all follow the plan, or none does. Times
// are judged at a step's end, as the mean of its micro-batches, because the first one differs.
absl::StatusOr<ReplanCause> StepPlans::JudgePlan(bool step_ends) {
  const bool followed = director_.outcome() == Director::Outcome::kFollowed;
  const double seconds = step_ends ? times_.MeanMicroBatchSeconds() : 0;
  const uint64_t excess_bytes = micro_batch_.workspace_grew && followed ? PeakExcessBytes() : 0;
  std::vector<double> worst = {followed ? 0.0 : 1.0, micro_batch_.workspace_grew ? 1.0 : 0.0,
                               static_cast<double>(excess_bytes), seconds};
  GEMINID_RETURN_IF_ERROR(
      setup_.Waited(StallCause::kCollective, [&] { return links_.agreement().Worst(&worst); }));
  const bool order_changed = worst[0] > 0;
  const bool grew = worst[1] > 0;
  // Without a plan, ranks may have run different operators and still have matched.
  if (order_changed) {
    const Trace trace = MakeTrace(director_.training_recorder().Moments());
    GEMINID_RETURN_IF_ERROR(links_.agreement().CheckSameOperators(trace.moments));
  }
  if (!controller_.has_value()) return ReplanCause::kNone;
  if (order_changed) return ReplanCause::kAccessOrder;
  if (!grew && !step_ends) return ReplanCause::kNone;
  const ReplanCause cause = controller_->OnStep(
      {.step_seconds = grew ? 0 : worst[3], .peak_excess_bytes = static_cast<uint64_t>(worst[2])});
  return grew ? ReplanCause::kPeak : cause;
}

// Makes the plan from the recording of the micro-batch that has just ended.
absl::Status StepPlans::PlanIfNeeded(bool step_ends) {
  const bool sampled = director_.outcome() == Director::Outcome::kSampled;
  GEMINID_ASSIGN_OR_RETURN(const ReplanCause cause, JudgePlan(step_ends));
  const bool new_operators = director_.outcome() != Director::Outcome::kFollowed;
  const bool wanted = new_operators ? director_.wants_plan() : cause != ReplanCause::kNone;
  if (!wanted) return absl::OkStatus();
  if (!sampled) tally_.CountReplan(cause);
  return MakePlanFromRecording();
}

absl::Status StepPlans::TellController() {
  const double seconds = std::max(plan()->predicted_step_seconds, kLeastPredictedSeconds);
  if (!controller_.has_value()) {
    GEMINID_ASSIGN_OR_RETURN(controller_, ReplanController::Create({}, seconds));
  }
  controller_->OnReplanned(seconds);
  return absl::OkStatus();
}

}  // namespace geminid::zero
