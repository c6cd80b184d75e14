// Operators, and what the engine does between them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/zero/basics/data_types.h"
#include "client/zero/engine/engine_impl.h"

namespace geminid::zero {
namespace {

// If workspace can grow to so many times its peak, nothing is evicted to let it grow further. A
// plan knows the sizes of workspace but for growth such as that of experts that get more tokens.
constexpr double kAmpleOnDemand = 4;
constexpr double kAmpleByPlan = 1.25;

}  // namespace

// --- what may be asked ---------------------------------------------------------------------------

absl::Status EngineImpl::CheckUse(Pass pass, std::span<const ParameterId> parameters) const {
  GEMINID_RETURN_IF_ERROR(standing_.unfilled);
  for (ParameterId id : parameters) GEMINID_RETURN_IF_ERROR(setup_.CheckId(id));
  if (setup_.updates_in_backward()) GEMINID_RETURN_IF_ERROR(CheckNotUpdated(parameters));
  if (pass == Pass::kEvaluate) {
    for (ParameterId id : parameters) {
      GEMINID_RETURN_IF_ERROR(book_->CheckWeight(static_cast<uint32_t>(id)));
    }
    return absl::OkStatus();
  }
  if (!director_->in_micro_batch()) {
    return absl::FailedPreconditionError("call BeginMicroBatch before the first forward operator");
  }
  if (step_->has_norm()) {
    return absl::FailedPreconditionError("after GradientNorm comes Step, before any operator");
  }
  for (ParameterId id : parameters) {
    // A backward operator may need only the extent of the weight, for its gradient.
    const bool takes_more =
        pass == Pass::kBackward && setup_.parameters[static_cast<uint32_t>(id)].backward_uses > 1;
    if (!takes_more) GEMINID_RETURN_IF_ERROR(book_->CheckWeight(static_cast<uint32_t>(id)));
  }
  return absl::OkStatus();
}

absl::Status EngineImpl::CheckNotUpdated(std::span<const ParameterId> parameters) const {
  for (ParameterId id : parameters) {
    if (!book_->IsReduced(setup_.ChunkOf(id))) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("parameter '", setup_.parameters[static_cast<uint32_t>(id)].name,
                     "' is used in the step that updates it, after its gradient was complete; use "
                     "it after Step, or have updates made after the step"));
  }
  return absl::OkStatus();
}

std::vector<uint32_t> EngineImpl::ChunksOf(Pass pass,
                                           std::span<const ParameterId> parameters) const {
  std::vector<uint32_t> chunks;
  for (ParameterId id : parameters) {
    const uint32_t chunk = setup_.ChunkOf(id);
    chunks.push_back(chunk);
    const bool trained = setup_.parameters[static_cast<uint32_t>(id)].trainable;
    if (pass == Pass::kBackward && trained && book_->IsSeparate(chunk)) {
      chunks.push_back(book_->StorageOf(chunk));
    }
  }
  std::sort(chunks.begin(), chunks.end());
  chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
  return chunks;
}

absl::StatusOr<Operation> EngineImpl::Use(Pass pass, std::span<const ParameterId> parameters) {
  const Lock lock(mutex_);
  return NoteAnswer(Begin(pass, parameters, nullptr));
}

absl::StatusOr<Operation> EngineImpl::Use(Pass pass, std::span<const ParameterId> parameters,
                                          StreamHandle stream) {
  const Lock lock(mutex_);
  GEMINID_ASSIGN_OR_RETURN(Stream* const on, StreamOf(stream));
  return NoteAnswer(Begin(pass, parameters, on));
}

absl::StatusOr<Operation> EngineImpl::Begin(Pass pass, std::span<const ParameterId> parameters,
                                            Stream* stream) {
  GEMINID_RETURN_IF_ERROR(HealthOnDevice());
  GEMINID_RETURN_IF_ERROR(CheckUse(pass, parameters));
  auto state = std::make_unique<Operation::State>();
  state->engine = self_;
  state->stream = stream;
  state->pass = pass;
  state->parameters.assign(parameters.begin(), parameters.end());
  state->chunks = ChunksOf(pass, parameters);
  absl::Status status;
  {
    const Residency::PlacementScope placing(residency_.get());
    const uint64_t workspace_bytes = placing.workspace_bytes();
    GEMINID_RETURN_IF_ERROR(residency_->CheckFits(state->chunks, workspace_bytes));
    plans_->EndOnStream();
    if (stream != nullptr) residency_->mover().Join(stream);
    status = BeginOperator(pass == Pass::kEvaluate, state->chunks, workspace_bytes, stream);
  }
  if (status.ok() && stream == nullptr) status = residency_->WaitResident(state->chunks);
  if (status.ok()) status = residency_->Hold(state->chunks, stream);
  if (!status.ok()) return Fail(status);
  plans_->BeginMoment(stream);
  return MakeOperation(std::move(state));
}

// --- moments -------------------------------------------------------------------------------------

absl::Status EngineImpl::BeginOperator(bool evaluate, const std::vector<uint32_t>& chunks,
                                       uint64_t workspace_bytes, Stream* stream) {
  plans_->EndMoment();
  if (evaluate) GEMINID_RETURN_IF_ERROR(plans_->PlanEvaluation(/*end=*/false));
  const Moves moves = director_->BeginOperator(evaluate, chunks);
  residency_->BeginOperator(director_->moment(), stream);
  const bool following = director_->following();
  Residency::Room room = {.chunks = chunks, .workspace_bytes = workspace_bytes};
  room.held_already = true;
  if (following) room.wanted_bytes = director_->followed().workspace_bytes(director_->moment());
  // A plan knows the size of workspace, unless workspace has grown beyond it.
  if (!following || plans_->workspace_grew()) {
    const double ample = following ? kAmpleByPlan : kAmpleOnDemand;
    room.enough_bytes = static_cast<uint64_t>(
        ample * static_cast<double>(residency_->meter().Read().peak_workspace_bytes));
  }
  return residency_->MoveWithRoom(moves, room);
}

absl::Status EngineImpl::SynchronizeStreams() {
  plans_->EndOnStream();
  return residency_->mover().Synchronize();
}

absl::Status EngineImpl::Synchronize() {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(Health());
  return Fail(SynchronizeStreams());
}

// --- what an operator holds ----------------------------------------------------------------------

const std::byte* EngineImpl::StableAddress(ParameterId id) const {
  if (setup_.views.empty() || !setup_.CheckId(id).ok()) return nullptr;
  return residency_->Address(setup_.ChunkOf(id), static_cast<uint32_t>(id));
}

const std::byte* EngineImpl::WeightOf(ParameterId id) const {
  const Lock lock(mutex_);
  const uint32_t tensor = static_cast<uint32_t>(id);
  return book_->WeightIsThere(tensor) ? residency_->Address(setup_.ChunkOf(id), tensor) : nullptr;
}

absl::Status EngineImpl::CopyWeight(ParameterId id, std::byte* to, Stream* stream) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(Health());
  const uint32_t tensor = static_cast<uint32_t>(id);
  const uint32_t chunk = setup_.ChunkOf(id);
  const uint64_t bytes =
      setup_.elements[tensor] * collectives::SizeOf(DTypeOf(setup_.layout.chunks[chunk]));
  ComputePlace place = residency_->compute();
  if (stream != nullptr) place.stream = stream;
  place.ops->Copy(*place.stream, to, residency_->Address(chunk, tensor), bytes);
  return stream == nullptr ? place.Finish() : absl::OkStatus();
}

std::byte* EngineImpl::GradientOf(ParameterId id) const {
  const Lock lock(mutex_);
  const uint32_t tensor = static_cast<uint32_t>(id);
  if (!book_->CheckGradient(tensor).ok()) return nullptr;
  const uint32_t storage = book_->StorageOf(setup_.ChunkOf(id));
  director_->NoteOverwritten(storage);
  return residency_->Address(storage, tensor);
}

bool EngineImpl::GradientAccumulates(ParameterId id) const {
  const Lock lock(mutex_);
  return book_->written(static_cast<uint32_t>(id)) > 0;
}

absl::Status EngineImpl::GradientWritten(ParameterId id) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(Health());
  const uint32_t tensor = static_cast<uint32_t>(id);
  GEMINID_RETURN_IF_ERROR(book_->CheckGradient(tensor));
  book_->Write(tensor);
  director_->NoteGradient(book_->StorageOf(setup_.ChunkOf(id)));
  return absl::OkStatus();
}

absl::Status EngineImpl::FinishOperation(std::span<const uint32_t> chunks, Stream* stream) {
  const Lock lock(mutex_);
  Mover& mover = residency_->mover();
  if (stream != nullptr) mover.Join(stream);
  const std::optional<uint64_t> point = mover.Mark(stream);
  for (uint32_t chunk : chunks) {
    mover.NoteUse(chunk, point);
    director_->Release(chunk);
    if (director_->holders(chunk) > 0) continue;
    mover.Release(chunk, director_->HoldsGradient(chunk) ? ChunkState::kHoldAfterBackward
                                                         : ChunkState::kHold);
  }
  GEMINID_RETURN_IF_ERROR(Health());
  for (uint32_t chunk : chunks) {
    const absl::Status status = ReduceIfComplete(book_->owners()[chunk]);
    if (!status.ok()) return Fail(status);
  }
  return absl::OkStatus();
}

// --- gradients -----------------------------------------------------------------------------------

absl::Status EngineImpl::ReduceIfComplete(uint32_t chunk) {
  const bool held = director_->holders(book_->StorageOf(chunk)) > 0;
  if (held || book_->IsReduced(chunk) || !book_->Complete(chunk)) return absl::OkStatus();
  return Reduce(chunk);
}

absl::Status EngineImpl::Reduce(uint32_t chunk) {
  const uint32_t storage = book_->StorageOf(chunk);
  // No operator used this chunk, so nothing waited for its update, which may read the gradient.
  GEMINID_RETURN_IF_ERROR(updater_->WaitCurrent(chunk, setup_.options.timeout));
  const int before = book_->reductions(chunk);
  book_->Reduce(chunk);
  const int after = setup_.sums_gradients() ? step_->micro_batches() + 1 : before + 1;
  const int all = setup_.sums_gradients() ? setup_.MicroBatchesOfStep() : setup_.options.accumulate;
  return residency_->Move(director_->Reduce(storage), {before == 0, after == all});
}

// Opens an extent of zeros, unless a part of the gradient is there already.
absl::Status EngineImpl::OpenGradient(uint32_t chunk) {
  const uint32_t storage = book_->StorageOf(chunk);
  {
    const Residency::PlacementScope placing(residency_.get());
    GEMINID_RETURN_IF_ERROR(
        PlaceGradient(storage, /*planned=*/false, placing.workspace_bytes(), nullptr));
  }
  return residency_->WaitResident({storage});
}

absl::Status EngineImpl::PlaceGradient(uint32_t storage, bool planned, uint64_t workspace_bytes,
                                       Stream* stream) {
  const bool begins_moment = planned && director_->GradientBeginsMoment(storage);
  if (begins_moment) {
    plans_->EndOnStream();
    plans_->EndMoment();
  }
  const Moves moves = director_->OpenGradient(storage, planned);
  if (begins_moment) {
    residency_->BeginMoment(director_->moment(), stream);
    plans_->BeginMoment(stream);
  }
  // Workspace that was released in the meantime may make enough room.
  return residency_->MoveWithRoom(moves, {.chunks = {storage},
                                          .workspace_bytes = workspace_bytes,
                                          .wanted_bytes = residency_->reserved_bytes()});
}

absl::Status EngineImpl::CheckAddGradient(ParameterId id, std::span<const std::byte> gradient,
                                          DataType type) const {
  GEMINID_RETURN_IF_ERROR(setup_.CheckId(id));
  const uint32_t tensor = static_cast<uint32_t>(id);
  const uint64_t elements = setup_.elements[tensor];
  if (!director_->in_micro_batch() || step_->has_norm()) {
    return absl::FailedPreconditionError("AddGradient works only inside a micro-batch");
  }
  if (!IsTrained(type)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the gradient of '", setup_.parameters[tensor].name,
                     "' has a type that gradients cannot have; give it in bf16 or fp32"));
  }
  if (gradient.size() != elements * SizeOf(type)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the gradient of '", setup_.parameters[tensor].name, "' has ", gradient.size(),
                     " bytes; its ", elements, " elements take ", elements * SizeOf(type)));
  }
  GEMINID_RETURN_IF_ERROR(book_->CheckGradient(tensor));
  if (book_->IsSeparate(setup_.ChunkOf(id))) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the gradient of '", setup_.parameters[tensor].name,
                   "' has no memory of its own to add to; set "
                   "Parameter::separate_gradient, or backward_uses to 0"));
}

absl::Status EngineImpl::AddTo(uint32_t tensor, std::span<const std::byte> gradient, DataType type,
                               Stream* stream) {
  const uint32_t chunk = setup_.layout.tensors[tensor].chunk;
  const uint32_t storage = book_->StorageOf(chunk);
  const collectives::DType to_type = DTypeOf(setup_.layout.chunks[chunk]);
  ComputePlace place = residency_->compute();
  Mover& mover = residency_->mover();
  if (stream == nullptr) {
    GEMINID_RETURN_IF_ERROR(mover.WaitUnused(storage));
  } else {
    GEMINID_RETURN_IF_ERROR(mover.WaitOn(stream, storage));
    place.stream = stream;
  }
  std::byte* const to = residency_->Address(storage, tensor);
  const device::Elements from = {gradient.data(), gradient.size() / SizeOf(type), ToDType(type)};
  if (book_->written(tensor) > 0) {
    place.ops->Add(*place.stream, from, to, to_type);
  } else {
    place.ops->Assign(*place.stream, from, to, to_type);
  }
  if (stream == nullptr) return place.Finish();
  mover.NoteUse(storage, mover.Mark(stream));
  return absl::OkStatus();
}

absl::Status EngineImpl::AddGradientOn(ParameterId id, std::span<const std::byte> gradient,
                                       DataType type, Stream* stream) {
  GEMINID_RETURN_IF_ERROR(Health());
  GEMINID_RETURN_IF_ERROR(CheckAddGradient(id, gradient, type));
  const uint32_t tensor = static_cast<uint32_t>(id);
  const uint32_t chunk = setup_.ChunkOf(id);
  const uint32_t storage = book_->StorageOf(chunk);
  absl::Status status;
  {
    const Residency::PlacementScope placing(residency_.get());
    GEMINID_RETURN_IF_ERROR(residency_->CheckFits({storage}, placing.workspace_bytes()));
    if (stream != nullptr) residency_->mover().Join(stream);
    status = PlaceGradient(storage, /*planned=*/true, placing.workspace_bytes(), stream);
  }
  if (status.ok() && stream == nullptr) status = residency_->WaitResident({storage});
  if (status.ok()) status = AddTo(tensor, gradient, type, stream);
  if (!status.ok()) return Fail(status);
  book_->Write(tensor);
  director_->NoteGradient(storage);
  return Fail(ReduceIfComplete(chunk));
}

absl::Status EngineImpl::AddGradient(ParameterId id, std::span<const std::byte> gradient,
                                     DataType type) {
  const Lock lock(mutex_);
  return NoteAnswer(AddGradientOn(id, gradient, type, nullptr));
}

absl::Status EngineImpl::AddGradient(ParameterId id, std::span<const std::byte> gradient,
                                     DataType type, StreamHandle stream) {
  const Lock lock(mutex_);
  GEMINID_ASSIGN_OR_RETURN(Stream* const on, StreamOf(stream));
  return NoteAnswer(AddGradientOn(id, gradient, type, on));
}

// --- workspace beyond the reservation -----------------------------------------------------------

absl::Status EngineImpl::GrowWorkspace(uint64_t extent_bytes) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(HealthOnDevice());
  plans_->NoteWorkspace(extent_bytes);
  return NoteAnswer(residency_->Grow(extent_bytes));
}

absl::StatusOr<std::byte*> EngineImpl::AllocateInHole(uint64_t bytes) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(HealthOnDevice());
  absl::StatusOr<std::byte*> data = NoteAnswer(residency_->AllocateInHole(bytes));
  if (data.ok()) plans_->NoteWorkspaceGrew();
  return data;
}

}  // namespace geminid::zero
