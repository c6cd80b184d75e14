// Micro-batches, and the end of steps.
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "client/zero/basics/crash_points.h"
#include "client/zero/engine/engine_impl.h"
#include "client/zero/state/disk_spent.h"

namespace geminid::zero {

absl::Status EngineImpl::CheckNothingOpen(const char* call) const {
  if (!director_->AnythingHeld()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(call, " while an Operation is open; finish all of them first"));
}

// In ZeRO's stage 1 the last micro-batch reduces the sums over all of them.
absl::Status EngineImpl::CheckMicroBatches(const char* call) const {
  const int all = setup_.MicroBatchesOfStep();
  if (!setup_.sums_gradients() || MicroBatchesBegun() == all) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      call, " after ", MicroBatchesBegun(), " micro-batches of ", all,
      ": ZeRO stage 1 reduces all gradients in the last of them; run the others, cancel the step "
      "with CancelMicroBatch, or use stage 2 for steps that end early"));
}

absl::Status EngineImpl::BeginStep(const StepInput& input) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(CheckBetweenSteps("BeginStep"));
  GEMINID_RETURN_IF_ERROR(setup_.CheckStep(input));
  if (!setup_.updates_in_backward()) return absl::OkStatus();
  if (absl::Status status = step_->CheckBegin(input); !status.ok()) {
    return absl::IsInvalidArgument(status) ? status : Fail(status);
  }
  if (step_->disk_spent()) return DiskSpent();
  return Fail(step_->Begin(input));
}

void EngineImpl::MeasureStepGradients() {
  const Lock lock(mutex_);
  const bool one = links_->control()->WorldSize() * setup_.options.accumulate == 1;
  if (one || setup_.options.micro_batch_parts > 1) return;
  residency_->mover().MeasureOwnGradients();
}

absl::Status EngineImpl::BeginMicroBatch() {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(HealthOnDevice());
  GEMINID_RETURN_IF_ERROR(standing_.unfilled);
  GEMINID_RETURN_IF_ERROR(CheckNothingOpen("BeginMicroBatch"));
  if (setup_.updates_in_backward() && !step_->has_begun()) {
    return absl::FailedPreconditionError(
        "parameters are updated in the backward pass: call BeginStep with the step's input before "
        "BeginMicroBatch");
  }
  const bool exactly = setup_.options.accumulate == 1 || setup_.sums_gradients();
  if (step_->has_norm() || (exactly && MicroBatchesBegun() == setup_.MicroBatchesOfStep())) {
    return absl::FailedPreconditionError(
        "the step's micro-batches are done; call Step, or set Options::accumulate to the "
        "micro-batches of a step");
  }
  absl::Status status;
  if (director_->in_micro_batch()) {
    GEMINID_RETURN_IF_ERROR(CheckRoomToReduce(/*step_ends=*/false));
    status = EndMicroBatch(/*step_ends=*/false);
  }
  plans_->EndMoment();
  if (status.ok()) status = plans_->PlanEvaluation(/*end=*/true);
  if (status.ok()) status = residency_->Move(director_->BeginMicroBatch());
  if (!status.ok()) return Fail(status);
  book_->BeginMicroBatch();
  residency_->BeginMicroBatch();
  plans_->BeginMicroBatch(/*first_of_step=*/step_->micro_batches() == 0);
  return absl::OkStatus();
}

absl::Status EngineImpl::EndMicroBatch(bool step_ends) {
  plans_->EndOnStream();
  plans_->EndMoment();
  GEMINID_RETURN_IF_ERROR(residency_->Move(director_->EndOperators()));
  plans_->EndOperators();
  GEMINID_RETURN_IF_ERROR(ReduceIncomplete(step_ends));
  GEMINID_RETURN_IF_ERROR(residency_->Move(director_->EndMicroBatch()));
  step_->CountMicroBatch();
  ++standing_.micro_batches;
  return plans_->EndMicroBatch(step_->micro_batches(), step_ends);
}

// A trained parameter that received no gradient has a gradient of zeros: all ranks reduce all
// chunks, whichever chunks each rank used. With micro-batches of several parts, a micro-batch
// reduces only the chunks that it gave gradients, the same on all ranks; the step's end reduces the
// rest. Sums over micro-batches are reduced at the step's end in any case.
std::vector<uint32_t> EngineImpl::Incomplete(bool step_ends) const {
  std::vector<uint32_t> chunks;
  for (uint32_t c = 0; c < setup_.layout.chunks.size(); ++c) {
    if (book_->IsReduced(c) || !setup_.layout.chunks[c].trainable) continue;
    const bool left_out = step_ends && (setup_.sums_gradients() || book_->reductions(c) == 0);
    if (setup_.options.micro_batch_parts > 1 && !book_->HasGradient(c) && !left_out) continue;
    chunks.push_back(c);
  }
  return chunks;
}

// Each gradient of zeros is made in the arena, beside the workspace that the trainer holds. As with
// Use, other ranks wait for a rank that is refused and calls again.
absl::Status EngineImpl::CheckRoomToReduce(bool step_ends) {
  const std::vector<uint32_t> chunks = Incomplete(step_ends);
  if (chunks.empty()) return absl::OkStatus();
  const Residency::PlacementScope placing(residency_.get());
  for (uint32_t c : chunks) {
    const absl::Status fits =
        residency_->CheckFits({book_->StorageOf(c)}, placing.workspace_bytes());
    if (fits.ok()) continue;
    const uint32_t tensor = setup_.layout.chunks[c].tensors.front();
    return absl::ResourceExhaustedError(absl::StrCat(
        "'", setup_.parameters[tensor].name,
        "' got no gradient, so its gradient is zeros, and the arena has no room for them beside ",
        base::FormatBytes(placing.workspace_bytes()),
        " of workspace in use: nothing has changed; release workspace and make this call again: ",
        fits.message()));
  }
  return absl::OkStatus();
}

absl::Status EngineImpl::ReduceIncomplete(bool step_ends) {
  const ComputePlace& place = residency_->compute();
  for (uint32_t c : Incomplete(step_ends)) {
    GEMINID_RETURN_IF_ERROR(OpenGradient(c));
    GEMINID_RETURN_IF_ERROR(residency_->mover().WaitUnused(book_->StorageOf(c)));
    for (uint32_t tensor : setup_.layout.chunks[c].tensors) {
      if (book_->written(tensor) > 0) continue;
      place.ops->Zero(*place.stream, residency_->Address(book_->StorageOf(c), tensor),
                      setup_.elements[tensor] * setup_.layout.chunks[c].element_bytes());
    }
    GEMINID_RETURN_IF_ERROR(place.Finish());
    GEMINID_RETURN_IF_ERROR(Reduce(c));
  }
  return absl::OkStatus();
}

absl::Status EngineImpl::CancelMicroBatch() {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(Health());
  GEMINID_RETURN_IF_ERROR(CheckNothingOpen("CancelMicroBatch"));
  if (MicroBatchesBegun() == 0) return absl::OkStatus();
  if (setup_.updates_in_backward() && book_->reduced() > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the step cannot be cancelled: the parameters of ", book_->reduced(), " of ",
                     setup_.layout.chunks.size(),
                     " chunks are updated; complete the step, or go on from a checkpoint"));
  }
  absl::Status status = SynchronizeStreams();
  plans_->EndMoment();
  if (status.ok() && director_->in_micro_batch()) {
    status = residency_->Move(director_->CancelMicroBatch());
  }
  if (status.ok()) status = residency_->mover().WaitIdle();
  if (!status.ok()) return Fail(status);
  step_->End();
  return absl::OkStatus();
}

// Ends the last micro-batch first, unless that was done. An evaluation since then may still wait
// for weights, which the step changes.
absl::StatusOr<double> EngineImpl::NormOfStep(const AgreedFields& step) {
  GEMINID_RETURN_IF_ERROR(SynchronizeStreams());
  Mover& mover = residency_->mover();
  if (step_->has_norm()) {
    GEMINID_RETURN_IF_ERROR(mover.WaitIdle());
    return step_->Norm(step);
  }
  GEMINID_RETURN_IF_ERROR(EndMicroBatch(/*step_ends=*/true));
  GEMINID_RETURN_IF_ERROR(mover.WaitIdle());
  GEMINID_RETURN_IF_ERROR(setup_.Waited(
      StallCause::kUpdate, [&] { return updater_->WaitIdle(setup_.options.timeout); }));
  GEMINID_RETURN_IF_ERROR(mover.FreeSpareBuffers());
  // Sums over micro-batches were measured when they were reduced.
  const bool measured = setup_.sums_gradients() || book_->AllReduced(setup_.options.accumulate);
  if (setup_.options.accumulate > 1 && !measured) {
    GEMINID_RETURN_IF_ERROR(mover.MeasureGradients());
  }
  return step_->Norm(step);
}

absl::StatusOr<double> EngineImpl::GradientNorm() {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(Health());
  GEMINID_RETURN_IF_ERROR(CheckStep("GradientNorm"));
  if (!step_->has_norm()) GEMINID_RETURN_IF_ERROR(CheckRoomToReduce(/*step_ends=*/true));
  const absl::StatusOr<double> norm = NormOfStep({{"the call", "GradientNorm"}});
  return norm.ok() ? norm : NotOfStep(norm.status());
}

// If ranks passed different steps, nothing has changed, and they may call again.
absl::Status EngineImpl::NotOfStep(const absl::Status& status) {
  return absl::IsInvalidArgument(status) && step_->has_norm() ? status : Fail(status);
}

absl::Status EngineImpl::CheckStep(const char* call) const {
  if (!step_->has_norm() && !director_->in_micro_batch()) {
    return absl::FailedPreconditionError(
        absl::StrCat(call, " without a micro-batch; call BeginMicroBatch first"));
  }
  GEMINID_RETURN_IF_ERROR(CheckMicroBatches(call));
  return CheckNothingOpen(call);
}

absl::StatusOr<StepResult> EngineImpl::Step(const StepInput& input) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(Health());
  GEMINID_RETURN_IF_ERROR(CheckStep("Step"));
  GEMINID_RETURN_IF_ERROR(setup_.CheckStep(input));
  GEMINID_RETURN_IF_ERROR(step_->CheckBegun(input));
  if (!step_->has_norm()) GEMINID_RETURN_IF_ERROR(CheckRoomToReduce(/*step_ends=*/true));
  const double clip_norm = input.clip_norm.value_or(setup_.options.clip_norm);
  const absl::StatusOr<double> own = NormOfStep(FieldsOf(input, clip_norm));
  if (!own.ok()) return NotOfStep(own.status());
  if (step_->disk_spent()) return DiskSpent();
  const double norm = input.gradient_norm.value_or(*own / input.gradient_scale);
  if (!std::isfinite(norm) && setup_.options.not_finite == NotFinite::kFail) {
    return NameNotFinite(norm);
  }
  CrashPoint("step agreed");
  StepResult result = step_->Decide(norm, clip_norm, input.gradient_scale);
  absl::Status status = step_->Prepare(input, result);
  if (status.ok()) status = residency_->Move(director_->ChangeWeights());
  if (!status.ok()) return Fail(status);
  step_->Commit(input, result, plans_->update_order());
  step_->End();
  if (status = YieldIfAsked(); !status.ok()) return Fail(status);
  result.wait_ended = !standing_.wait_ended.ok();
  return result;
}

// All ranks get here together; the numbers in the message are those of this rank.
absl::Status EngineImpl::DiskSpent() const {
  const DiskState* const disk = store_->disk();
  return MarkDiskSpent(absl::ResourceExhaustedError(absl::StrCat(
      "a step would write more to disk than StateDisk::endurance_bytes of a rank allows (here ",
      base::FormatBytes(disk == nullptr ? 0 : disk->written_bytes()), " of ",
      base::FormatBytes(setup_.options.state_disk.endurance_bytes),
      " are written): nothing has changed. Give the step up with CancelMicroBatch and save; go on "
      "with more endurance, or with state on the host")));
}

// All ranks get here together.
absl::Status EngineImpl::NameNotFinite(double norm) {
  const absl::StatusOr<std::string> where = step_->WhereNotFinite();
  if (!where.ok()) return Fail(where.status());
  return absl::FailedPreconditionError(absl::StrCat(
      "the step's gradient is not finite (its norm is ", norm, "), first in ", *where,
      ": nothing has changed. Give the step up with CancelMicroBatch, or train with a lower "
      "learning rate, or say with Options::not_finite that such steps are skipped or written"));
}

}  // namespace geminid::zero
