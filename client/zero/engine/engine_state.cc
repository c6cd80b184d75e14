// State in and out: when calls are allowed, and what they wait for first.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "client/zero/core/extent.h"
#include "client/zero/engine/engine_impl.h"

namespace geminid::zero {

absl::Status EngineImpl::CheckNotStarted(const char* call) {
  GEMINID_RETURN_IF_ERROR(Health());
  if (standing_.micro_batches > 0 || director_->in_micro_batch()) {
    return absl::FailedPreconditionError(
        absl::StrCat(call, " must come before the first micro-batch"));
  }
  GEMINID_RETURN_IF_ERROR(CheckNothingOpen(call));
  return residency_->Move(director_->DropAll());
}

absl::Status EngineImpl::CheckNew(const char* call) {
  if (!standing_.resumed.has_value()) return CheckNotStarted(call);
  return absl::FailedPreconditionError(absl::StrCat(
      call, " would overwrite the state that this engine resumed from, step ",
      standing_.resumed->step, " of the process before (Engine::resumed); leave the call out"));
}

absl::Status EngineImpl::CheckBetweenSteps(const char* call) {
  GEMINID_RETURN_IF_ERROR(Health());
  if (MicroBatchesBegun() == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(call, " works only between steps: after Step, before BeginMicroBatch"));
}

// Within a step the state is that of the last one, until Step updates it. A snapshot reads it
// there, too.
absl::Status EngineImpl::CheckStateOfLastStep(const char* call) {
  GEMINID_RETURN_IF_ERROR(Health());
  if (MicroBatchesBegun() == 0 || !setup_.updates_in_backward()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(call,
                   " works only between steps, because the backward pass updates parameters "
                   "(UpdateTime::kInBackward); call it after Step, before BeginMicroBatch"));
}

// Waits for updates and for a snapshot in progress, which also reads the state.
absl::Status EngineImpl::WaitNobodyReadsState() {
  // The snapshot's own error is returned by WaitSnapshot.
  absl::Status ended = state_->snapshotter().Wait(setup_.options.timeout);
  if (absl::IsDeadlineExceeded(ended)) return ended;
  return updater_->WaitIdle(setup_.options.timeout);
}

// Called before the state is changed by anything other than the update.
absl::Status EngineImpl::ForgetDeviceCopies() {
  GEMINID_RETURN_IF_ERROR(WaitNobodyReadsState());
  GEMINID_RETURN_IF_ERROR(residency_->Move(director_->ChangeWeights()));
  GEMINID_RETURN_IF_ERROR(residency_->Move(director_->DropAll()));
  return residency_->mover().WaitIdle();
}

absl::Status EngineImpl::MoveStateToDevice(std::span<const uint32_t> chunks) {
  if (chunks.empty()) return absl::OkStatus();
  GEMINID_RETURN_IF_ERROR(WaitNobodyReadsState());
  GEMINID_RETURN_IF_ERROR(store_->MoveToDevice(chunks));
  residency_->SetStateBytes(store_->device_bytes());
  return ReadHostBytes();
}

// First comes the part that may fail on one rank alone; it changes nothing.
absl::StatusOr<ActivationStack*> EngineImpl::MakeActivationStack(const ActivationShape& shape) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(CheckNotStarted("MakeActivationStack"));
  auto mine = PrepareActivations(shape);
  GEMINID_ASSIGN_OR_RETURN(
      std::vector<ChunkId> places,
      MakePlaces(mine.status(), shape.places, mine.ok() ? PlaceBytes(shape) : 0));
  (*mine)->SetPlaces(std::move(places));
  residency_->KeepActivations(*std::move(mine));
  return residency_->activations();
}

absl::StatusOr<ActivationStore*> EngineImpl::MakeActivationStore(
    const ActivationStoreOptions& options) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(CheckNotStarted("MakeActivationStore"));
  absl::Status mine = CheckActivationStoreOptions(options);
  if (mine.ok()) mine = CheckPlaces(options.places, options.place_bytes);
  GEMINID_ASSIGN_OR_RETURN(std::vector<ChunkId> places,
                           MakePlaces(mine, options.places, options.place_bytes));
  residency_->KeepSavedActivations(std::make_unique<SavedActivations>(
      setup_.session, options, std::move(places), setup_.options.timeout));
  return residency_->saved_activations();
}

absl::StatusOr<ActivationStore*> MakeActivationStore(Engine* engine,
                                                     const ActivationStoreOptions& options) {
  auto* const made_here = dynamic_cast<EngineImpl*>(engine);
  if (made_here != nullptr) return made_here->MakeActivationStore(options);
  return absl::InvalidArgumentError(
      "MakeActivationStore: the engine was not made by Engine::Create");
}

absl::StatusOr<std::vector<ChunkId>> EngineImpl::MakePlaces(const absl::Status& mine,
                                                            uint32_t places, uint64_t place_bytes) {
  GEMINID_RETURN_IF_ERROR(residency_->mover().WaitIdle());
  std::vector<double> failed = {mine.ok() ? 0 : links_->rank() + 1.0};
  GEMINID_RETURN_IF_ERROR(Fail(links_->agreement().Worst(&failed)));
  GEMINID_RETURN_IF_ERROR(mine);
  if (failed[0] > 0) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "rank ", failed[0] - 1, " has no memory for its activations; its own error says why"));
  }
  GEMINID_ASSIGN_OR_RETURN(
      std::vector<ChunkId> made,
      store_->MakePlaces("place of activations", places, RoundUpToExtent(place_bytes)));
  residency_->SetStateBytes(store_->device_bytes());
  GEMINID_RETURN_IF_ERROR(ReadHostBytes());
  return made;
}

absl::StatusOr<std::unique_ptr<OffloadedActivations>> EngineImpl::PrepareActivations(
    const ActivationShape& shape) const {
  GEMINID_RETURN_IF_ERROR(CheckActivationShape(shape));
  GEMINID_RETURN_IF_ERROR(CheckPlaces(shape.places, PlaceBytes(shape)));
  Stream* stream = nullptr;
  if (shape.stream.has_value()) {
    GEMINID_ASSIGN_OR_RETURN(stream, StreamOf(*shape.stream));
  }
  return OffloadedActivations::Create(setup_.session, shape, stream, setup_.options.timeout);
}

absl::Status EngineImpl::CheckPlaces(uint32_t places, uint64_t place_bytes) const {
  if (residency_->activations() != nullptr || residency_->saved_activations() != nullptr) {
    return absl::FailedPreconditionError(
        "the engine has an ActivationStack or an ActivationStore already");
  }
  const uint64_t taken = store_->device_bytes();
  const uint64_t arena = setup_.session->arena_bytes();
  const uint64_t place = place_bytes > arena ? place_bytes : RoundUpToExtent(place_bytes);
  if (places <= (arena - taken) / place) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      places, " places of ", base::FormatBytes(place), " for activations do not fit the ",
      "device arena of ", base::FormatBytes(arena), ", of which state takes ",
      base::FormatBytes(taken), "; use fewer places, a smaller batch, or more device memory"));
}

// --- values --------------------------------------------------------------------------------------

absl::Status EngineImpl::Initialize(const Fill& fill) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(CheckNew("Initialize"));
  BeginFill("Initialize");
  absl::Status filled;
  GEMINID_RETURN_IF_ERROR(Fail(state_->Initialize(fill, &filled)));
  return AgreeOnFill("Initialize", filled);
}

absl::Status EngineImpl::InitializeShards(const FillRange& fill) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(CheckNew("InitializeShards"));
  BeginFill("InitializeShards");
  absl::Status filled;
  GEMINID_RETURN_IF_ERROR(Fail(state_->InitializeShards(fill, &filled)));
  return AgreeOnFill("InitializeShards", filled);
}

// Until all ranks have agreed that their values are set, nothing may be computed with them.
void EngineImpl::BeginFill(const char* call) {
  standing_.unfilled = absl::FailedPreconditionError(
      absl::StrCat("the parameters have no values: ", call, " did not end; call it again"));
}

// If any rank fails, the engine stays usable: values can be set again. Until then nothing may be
// computed with them.
absl::Status EngineImpl::AgreeOnFill(const char* call, const absl::Status& filled) {
  const absl::StatusOr<std::optional<uint32_t>> first = state_->FirstWithout(filled);
  if (!first.ok()) return Fail(first.status());
  standing_.unfilled = absl::OkStatus();
  if (!first->has_value()) return filled;
  standing_.unfilled = absl::FailedPreconditionError(
      absl::StrCat("the parameters have no values: ", call, " failed on rank ", **first,
                   "; call it again on all ranks, or load a checkpoint"));
  if (!filled.ok()) return filled;
  return absl::AbortedError(absl::StrCat(call, ": the values of rank ", **first,
                                         " are missing, and that rank's error says why; call it "
                                         "again on all ranks, load a checkpoint, or end"));
}

void EngineImpl::Invalidate(std::string why) {
  const Lock lock(mutex_);
  standing_.unfilled = absl::FailedPreconditionError(why);
}

absl::StatusOr<std::vector<float>> EngineImpl::ReadParameter(ParameterId id) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(Health());
  GEMINID_RETURN_IF_ERROR(setup_.CheckId(id));
  if (director_->in_micro_batch() || step_->has_norm()) {
    return absl::FailedPreconditionError("ReadParameter works only between steps");
  }
  GEMINID_RETURN_IF_ERROR(Fail(updater_->WaitIdle(setup_.options.timeout)));
  absl::StatusOr<std::vector<float>> values = state_->ReadParameter(id);
  Fail(values.status()).IgnoreError();
  return values;
}

// --- shards --------------------------------------------------------------------------------------

absl::Status EngineImpl::ReadShard(ParameterId id, StateKind kind, uint64_t offset,
                                   std::span<float> values) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(CheckStateOfLastStep("ReadShard"));
  GEMINID_RETURN_IF_ERROR(state_->Check(id, kind));
  GEMINID_ASSIGN_OR_RETURN(const auto pieces, state_->PiecesOf(id, offset, values.size()));
  GEMINID_RETURN_IF_ERROR(Fail(updater_->WaitIdle(setup_.options.timeout)));
  return Fail(state_->Read(pieces, kind, offset, values));
}

absl::Status EngineImpl::WriteShard(ParameterId id, StateKind kind, uint64_t offset,
                                    std::span<const float> values) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(CheckBetweenSteps("WriteShard"));
  GEMINID_RETURN_IF_ERROR(CheckNothingOpen("WriteShard"));
  GEMINID_RETURN_IF_ERROR(state_->Check(id, kind));
  GEMINID_ASSIGN_OR_RETURN(const auto pieces, state_->PiecesOf(id, offset, values.size()));
  GEMINID_RETURN_IF_ERROR(state_->CheckValues(id, offset, values));
  GEMINID_RETURN_IF_ERROR(Fail(ForgetDeviceCopies()));
  return Fail(state_->Write(pieces, kind, offset, values));
}

absl::Status EngineImpl::CheckGradientCall(const char* call, ParameterId id) {
  GEMINID_RETURN_IF_ERROR(Health());
  GEMINID_RETURN_IF_ERROR(setup_.CheckId(id));
  const Parameter& parameter = setup_.parameters[static_cast<uint32_t>(id)];
  if (!step_->has_norm()) {
    return absl::FailedPreconditionError(
        absl::StrCat(call, " works only between GradientNorm and Step"));
  }
  if (parameter.trainable && !setup_.updates_in_backward()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "parameter '", parameter.name,
      "' has no gradient: ", parameter.trainable ? "its update is made already" : "it is frozen"));
}

absl::Status EngineImpl::ReadGradient(ParameterId id, uint64_t offset, std::span<float> values) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(CheckGradientCall("ReadGradient", id));
  GEMINID_ASSIGN_OR_RETURN(const auto pieces, state_->PiecesOf(id, offset, values.size()));
  return Fail(state_->ReadGradient(pieces, offset, step_->Scale(), values));
}

absl::Status EngineImpl::WriteGradient(ParameterId id, uint64_t offset,
                                       std::span<const float> values) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(CheckGradientCall("WriteGradient", id));
  GEMINID_ASSIGN_OR_RETURN(const auto pieces, state_->PiecesOf(id, offset, values.size()));
  step_->NoteGradientsWritten();
  return Fail(state_->WriteGradient(pieces, offset, step_->Scale(), values));
}

// --- runs ----------------------------------------------------------------------------------------

absl::Status EngineImpl::Restore(const Progress& progress) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(CheckBetweenSteps("Restore"));
  GEMINID_RETURN_IF_ERROR(CheckNothingOpen("Restore"));
  GEMINID_ASSIGN_OR_RETURN(const auto tensor_state, step_->CheckProgress(progress));
  GEMINID_RETURN_IF_ERROR(Fail(ForgetDeviceCopies()));
  GEMINID_RETURN_IF_ERROR(Fail(step_->Restore(progress, tensor_state)));
  standing_.unfilled = absl::OkStatus();
  return absl::OkStatus();
}

absl::StatusOr<Progress> EngineImpl::GetProgress() {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(CheckStateOfLastStep("GetProgress"));
  absl::StatusOr<Progress> progress = step_->GetProgress();
  Fail(progress.status()).IgnoreError();
  return progress;
}

// On the mover's communicator, so that a rank that gathers weights meanwhile is named at once. The
// mover's thread does not use it: the mover is idle, and the lock keeps new moves away.
absl::Status EngineImpl::Meet(std::string_view words) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(Health());
  if (links_->world_size() == 1) return absl::OkStatus();
  GEMINID_RETURN_IF_ERROR(Fail(residency_->mover().WaitIdle()));
  return Fail(setup_.Waited(StallCause::kCollective, [&] { return links_->Meet(words); }));
}

absl::Status EngineImpl::StartSnapshot(std::shared_ptr<SnapshotSink> sink) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(CheckBetweenSteps("StartSnapshot"));
  GEMINID_RETURN_IF_ERROR(standing_.unfilled);
  // Chunks that are updated first come first, so that the updater seldom overtakes the snapshot.
  std::vector<uint32_t> order = plans_->update_order();
  std::vector<bool> listed(setup_.layout.chunks.size(), false);
  for (uint32_t chunk : order) listed[chunk] = true;
  for (uint32_t chunk = 0; chunk < listed.size(); ++chunk) {
    if (!listed[chunk]) order.push_back(chunk);
  }
  return state_->snapshotter().Start(step_->position().epoch, std::move(order), updater_.get(),
                                     std::move(sink));
}

absl::Status EngineImpl::WaitSnapshot() {
  GEMINID_RETURN_IF_ERROR(CheckNotForked(*setup_.session));
  return state_->snapshotter().Wait(setup_.options.timeout);
}

}  // namespace geminid::zero
