// Operators, and what happens between them.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/zero/core/extent.h"
#include "client/zero/core/shortage.h"
#include "client/zero/data_types.h"
#include "client/zero/engine_impl.h"

namespace geminid::zero {
namespace {

// Where workspace can grow to this many times the most there ever was, nothing leaves for it.
constexpr uint64_t kAmple = 4;

}  // namespace

// --- what may be asked ---------------------------------------------------------------------------

absl::Status EngineImpl::CheckId(ParameterId id) const {
  if (static_cast<uint32_t>(id) < parameters_.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "there is no parameter ", static_cast<uint32_t>(id), "; there are ", parameters_.size()));
}

absl::Status EngineImpl::CheckUse(Pass pass, std::span<const ParameterId> parameters) const {
  for (ParameterId id : parameters) GEMINID_RETURN_IF_ERROR(CheckId(id));
  if (updates_in_backward()) GEMINID_RETURN_IF_ERROR(CheckNotUpdated(parameters));
  if (pass == Pass::kEvaluate) {
    for (ParameterId id : parameters) {
      GEMINID_RETURN_IF_ERROR(book_->CheckWeight(static_cast<uint32_t>(id)));
    }
    return absl::OkStatus();
  }
  if (!director_->in_micro_batch()) {
    return absl::FailedPreconditionError("call BeginMicroBatch before the first forward operator");
  }
  if (open_.norm.has_value()) {
    return absl::FailedPreconditionError("after GradientNorm comes Step, before any operator");
  }
  for (ParameterId id : parameters) {
    // A backward may want no more of it than the place of its gradient.
    const bool takes_more =
        pass == Pass::kBackward && parameters_[static_cast<uint32_t>(id)].backward_uses > 1;
    if (!takes_more) GEMINID_RETURN_IF_ERROR(book_->CheckWeight(static_cast<uint32_t>(id)));
  }
  return absl::OkStatus();
}

absl::Status EngineImpl::CheckNotUpdated(std::span<const ParameterId> parameters) const {
  for (ParameterId id : parameters) {
    if (!book_->IsReduced(ChunkOf(id))) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("parameter '", parameters_[static_cast<uint32_t>(id)].name,
                     "' is used in the step that updates it, after its gradient was complete; use "
                     "it after Step, or have updates made after the step"));
  }
  return absl::OkStatus();
}

std::vector<uint32_t> EngineImpl::ChunksOf(Pass pass,
                                           std::span<const ParameterId> parameters) const {
  std::vector<uint32_t> chunks;
  for (ParameterId id : parameters) {
    const uint32_t chunk = ChunkOf(id);
    chunks.push_back(chunk);
    const bool trained = parameters_[static_cast<uint32_t>(id)].trainable;
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
  return Answer(Begin(pass, parameters, nullptr));
}

absl::StatusOr<Operation> EngineImpl::Use(Pass pass, std::span<const ParameterId> parameters,
                                          StreamHandle stream) {
  const Lock lock(mutex_);
  GEMINID_ASSIGN_OR_RETURN(Stream* const on, StreamOf(stream));
  return Answer(Begin(pass, parameters, on));
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
    const Placing placing(this);
    GEMINID_RETURN_IF_ERROR(CheckFits(state->chunks, placing.workspace_bytes()));
    times_.EndOnStream();
    if (stream != nullptr) mover_->Join(stream);
    status =
        BeginOperator(pass == Pass::kEvaluate, state->chunks, placing.workspace_bytes(), stream);
  }
  if (status.ok() && stream == nullptr) status = WaitResident(state->chunks);
  if (status.ok()) status = HoldChunks(state->chunks, stream);
  if (!status.ok()) return Remember(status);
  BeginMeasuringMoment(stream);
  return MakeOperation(std::move(state));
}

// --- moments -------------------------------------------------------------------------------------

// What the operator before this moment took.
void EngineImpl::Measure() {
  const std::optional<absl::Duration> took = times_.EndMoment(director_->evaluating());
  if (!took.has_value()) return;
  Recorder& recorder = director_->recorder();
  recorder.NoteCompute(absl::ToDoubleSeconds(*took));
  recorder.NoteWorkspace(workspace_->TakePeakExtent());
}

absl::Status EngineImpl::Carry(const Moves& moves, MicroBatchPosition position) {
  if (moves.empty()) return absl::OkStatus();
  return mover_->Run(placer_->Place(moves), operation_, position);
}

absl::Status EngineImpl::CheckFits(const std::vector<uint32_t>& chunks,
                                   uint64_t workspace_bytes) const {
  if (placer_->Fits(chunks, workspace_bytes, Held())) return absl::OkStatus();
  const auto needed = [&](uint32_t chunk) {
    return director_->holders(chunk) > 0 || std::ranges::binary_search(chunks, chunk);
  };
  return DoesNotFit(needed, workspace_bytes);
}

absl::Status EngineImpl::BeginOperator(bool evaluate, const std::vector<uint32_t>& chunks,
                                       uint64_t workspace_bytes, Stream* stream) {
  Measure();
  if (evaluate) {
    evaluated_ = true;
    GEMINID_RETURN_IF_ERROR(PlanEvaluation(/*end=*/false));
  }
  const Moves moves = director_->BeginOperator(evaluate, chunks);
  ++operation_;
  mover_->BeginMoment(director_->moment(), stream);
  const auto loads = LoadsOf(moves);
  GEMINID_RETURN_IF_ERROR(Carry(Moves(moves.begin(), loads)));

  const Placer::Held held = [&](uint32_t chunk) {
    return director_->holders(chunk) > (std::ranges::binary_search(chunks, chunk) ? 1 : 0);
  };
  const uint64_t planned =
      director_->following() ? director_->followed().workspace_bytes(director_->moment()) : 0;
  const absl::StatusOr<Steps> reserve = placer_->Reserve(workspace_bytes, planned, held);
  if (!reserve.ok()) return DoesNotFit(held, workspace_bytes);
  GEMINID_RETURN_IF_ERROR(mover_->Run(*reserve, operation_, {}));
  session_->SetWorkspace(workspace_->in_use_bytes());
  // A plan knows how much workspace there will be, unless it grew since.
  if (!director_->following() || workspace_grew_) {
    const uint64_t enough_bytes = kAmple * meter_.Read().peak_workspace_bytes;
    const Steps steps = placer_->MakeWay(chunks, enough_bytes, held);
    GEMINID_RETURN_IF_ERROR(mover_->Run(steps, operation_, {}));
  }
  GEMINID_RETURN_IF_ERROR(Carry(Moves(loads, moves.end())));
  return Bring(chunks, held);
}

// What a plan knows of an operator's time must be of its work, not of its being queued: from when
// the stream has got past its waits to when it comes to what the next one waits for.
void EngineImpl::BeginMeasuringMoment(Stream* stream) {
  times_.BeginMoment();
  if (stream == nullptr || director_->evaluating()) return;
  times_.BeginOnStream(stream, director_->training_recorder().size() - 1);
}

absl::Status EngineImpl::SynchronizeStreams() {
  times_.EndOnStream();
  return mover_->Synchronize();
}

absl::Status EngineImpl::Synchronize() {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(Health());
  return Remember(SynchronizeStreams());
}

absl::Status EngineImpl::Bring(const std::vector<uint32_t>& chunks, const Placer::Held& held) {
  const absl::StatusOr<Steps> steps = placer_->Bring(chunks, held);
  if (!steps.ok()) {
    const auto needed = [&](uint32_t chunk) {
      return held(chunk) || std::ranges::binary_search(chunks, chunk);
    };
    return DoesNotFit(needed, workspace_->extent_bytes());
  }
  return mover_->Run(*steps, operation_, {});
}

absl::Status EngineImpl::WaitResident(const std::vector<uint32_t>& chunks) {
  for (uint32_t chunk : chunks) GEMINID_RETURN_IF_ERROR(mover_->WaitResident(chunk));
  return absl::OkStatus();
}

absl::Status EngineImpl::DoesNotFit(const Placer::Held& needed, uint64_t activation_bytes) const {
  uint64_t chunk_bytes = 0;
  std::set<uint32_t> tensors;
  for (uint32_t chunk = 0; chunk < gathered_.size(); ++chunk) {
    if (!needed(chunk)) continue;
    const ChunkShape& shape = layout_.chunks[book_->owners()[chunk]];
    chunk_bytes += RoundUpToExtent(shape.bytes());
    tensors.insert(shape.tensors.begin(), shape.tensors.end());
  }
  std::string names;
  if (!tensors.empty()) names = absl::StrCat("'", parameters_[*tensors.begin()].name, "'");
  if (tensors.size() > 1) absl::StrAppend(&names, " and ", tensors.size() - 1, " more");
  return absl::ResourceExhaustedError(Describe({.operation = operation_,
                                                .parameters = names,
                                                .chunk_bytes = chunk_bytes,
                                                .activation_bytes = activation_bytes,
                                                .state_bytes = store_->device_bytes(),
                                                .arena_bytes = session_->arena_bytes()}));
}

// --- what an operator holds ----------------------------------------------------------------------

absl::Status EngineImpl::HoldChunks(const std::vector<uint32_t>& chunks, Stream* stream) {
  for (uint32_t chunk : chunks) {
    GEMINID_RETURN_IF_ERROR(mover_->Hold(chunk));
    if (stream != nullptr) GEMINID_RETURN_IF_ERROR(mover_->WaitOn(stream, chunk));
  }
  return absl::OkStatus();
}

std::byte* EngineImpl::Address(uint32_t chunk, uint32_t tensor) const {
  const TensorPlace& place = layout_.tensors[tensor];
  std::byte* const begin = views_.empty() ? session_->arena() + mover_->offset(chunk)
                                          : DeviceOf(*session_)->views() + views_[chunk];
  return begin + place.offset * layout_.chunks[place.chunk].element_bytes;
}

const std::byte* EngineImpl::StableAddress(ParameterId id) const {
  if (views_.empty() || !CheckId(id).ok()) return nullptr;
  return Address(ChunkOf(id), static_cast<uint32_t>(id));
}

const std::byte* EngineImpl::WeightOf(ParameterId id) const {
  const Lock lock(mutex_);
  const uint32_t tensor = static_cast<uint32_t>(id);
  return book_->WeightIsThere(tensor) ? Address(ChunkOf(id), tensor) : nullptr;
}

std::byte* EngineImpl::GradientOf(ParameterId id) const {
  const Lock lock(mutex_);
  const uint32_t tensor = static_cast<uint32_t>(id);
  if (!book_->CheckGradient(tensor).ok()) return nullptr;
  return Address(book_->StorageOf(ChunkOf(id)), tensor);
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
  director_->NoteGradient(book_->StorageOf(ChunkOf(id)));
  return absl::OkStatus();
}

absl::Status EngineImpl::FinishOperation(std::span<const uint32_t> chunks, Stream* stream) {
  const Lock lock(mutex_);
  if (stream != nullptr) mover_->Join(stream);
  const std::optional<uint64_t> point = mover_->Mark(stream);
  for (uint32_t chunk : chunks) {
    mover_->NoteUse(chunk, point);
    director_->Release(chunk);
    if (director_->holders(chunk) > 0) continue;
    mover_->Release(chunk, director_->HoldsGradient(chunk) ? ChunkState::kHoldAfterBackward
                                                           : ChunkState::kHold);
  }
  GEMINID_RETURN_IF_ERROR(Health());
  for (uint32_t chunk : chunks) {
    const absl::Status status = ReduceIfComplete(book_->owners()[chunk]);
    if (!status.ok()) return Remember(status);
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
  // One that no operator used was not waited for: its update still reads the gradient before.
  GEMINID_RETURN_IF_ERROR(updater_->WaitCurrent(chunk, options_.timeout));
  const int before = book_->reductions(chunk);
  book_->Reduce(chunk);
  const int after = sums_gradients() ? open_.micro_batches + 1 : before + 1;
  const int all = sums_gradients() ? MicroBatchesOfStep() : options_.accumulate;
  return Carry(director_->Reduce(storage), {before == 0, after == all});
}

absl::Status EngineImpl::OpenGradient(uint32_t chunk, bool planned, Stream* stream) {
  const std::vector<uint32_t> storage = {book_->StorageOf(chunk)};
  {
    const Placing placing(this);
    GEMINID_RETURN_IF_ERROR(PlaceGradient(storage, planned, placing.workspace_bytes(), stream));
  }
  return stream != nullptr ? absl::OkStatus() : WaitResident(storage);
}

absl::Status EngineImpl::PlaceGradient(const std::vector<uint32_t>& storage, bool planned,
                                       uint64_t workspace_bytes, Stream* stream) {
  const bool begins_moment = planned && director_->GradientBeginsMoment(storage[0]);
  if (begins_moment) {
    times_.EndOnStream();
    Measure();
  }
  const Moves moves = director_->OpenGradient(storage[0], planned);
  const auto loads = LoadsOf(moves);
  if (begins_moment) {
    mover_->BeginMoment(director_->moment(), stream);
    BeginMeasuringMoment(stream);
  }
  GEMINID_RETURN_IF_ERROR(Carry(Moves(moves.begin(), loads)));
  // Workspace that has been given back since may serve.
  const absl::StatusOr<Steps> reserve =
      placer_->Reserve(workspace_bytes, placer_->reserved_bytes(), Held());
  if (!reserve.ok()) return reserve.status();
  GEMINID_RETURN_IF_ERROR(mover_->Run(*reserve, operation_, {}));
  GEMINID_RETURN_IF_ERROR(Carry(Moves(loads, moves.end())));
  return Bring(storage, Held());
}

absl::Status EngineImpl::CheckAddGradient(ParameterId id, std::span<const std::byte> gradient,
                                          DataType type) const {
  GEMINID_RETURN_IF_ERROR(CheckId(id));
  const uint32_t tensor = static_cast<uint32_t>(id);
  const uint64_t elements = ElementsOfTensor(tensor);
  if (!director_->in_micro_batch() || open_.norm.has_value()) {
    return absl::FailedPreconditionError("AddGradient is for within a micro-batch");
  }
  if (gradient.size() != elements * SizeOf(type)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the gradient of '", parameters_[tensor].name, "' has ", gradient.size(),
                     " bytes; its ", elements, " elements take ", elements * SizeOf(type)));
  }
  GEMINID_RETURN_IF_ERROR(book_->CheckGradient(tensor));
  if (book_->IsSeparate(ChunkOf(id))) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the gradient of '", parameters_[tensor].name,
                   "' has no place of its own to be added in; set "
                   "Parameter::separate_gradient, or backward_uses to 0"));
}

absl::Status EngineImpl::AddTo(uint32_t tensor, std::span<const std::byte> gradient, DataType type,
                               Stream* stream) {
  const uint32_t chunk = layout_.tensors[tensor].chunk;
  const uint32_t storage = book_->StorageOf(chunk);
  const collectives::DType to_type = DTypeOf(layout_.chunks[chunk]);
  ComputePlace place = compute_->on_device();
  if (stream == nullptr) {
    GEMINID_RETURN_IF_ERROR(mover_->WaitUnused(storage));
  } else {
    GEMINID_RETURN_IF_ERROR(mover_->WaitOn(stream, storage));
    place.stream = stream;
  }
  std::byte* const to = Address(storage, tensor);
  const device::Elements from = {gradient.data(), gradient.size() / SizeOf(type), ToDType(type)};
  if (book_->written(tensor) > 0) {
    place.ops->Add(*place.stream, from, to, to_type);
  } else {
    place.ops->Assign(*place.stream, from, to, to_type);
  }
  if (stream == nullptr) return place.Finish();
  mover_->NoteUse(storage, mover_->Mark(stream));
  return absl::OkStatus();
}

absl::Status EngineImpl::AddGradientOn(ParameterId id, std::span<const std::byte> gradient,
                                       DataType type, Stream* stream) {
  GEMINID_RETURN_IF_ERROR(Health());
  GEMINID_RETURN_IF_ERROR(CheckAddGradient(id, gradient, type));
  const uint32_t tensor = static_cast<uint32_t>(id);
  const uint32_t chunk = ChunkOf(id);
  const std::vector<uint32_t> storage = {book_->StorageOf(chunk)};
  absl::Status status;
  {
    const Placing placing(this);
    GEMINID_RETURN_IF_ERROR(CheckFits(storage, placing.workspace_bytes()));
    if (stream != nullptr) mover_->Join(stream);
    status = PlaceGradient(storage, /*planned=*/true, placing.workspace_bytes(), stream);
  }
  if (status.ok() && stream == nullptr) status = WaitResident(storage);
  if (status.ok()) status = AddTo(tensor, gradient, type, stream);
  if (!status.ok()) return Remember(status);
  book_->Write(tensor);
  director_->NoteGradient(book_->StorageOf(chunk));
  return Remember(ReduceIfComplete(chunk));
}

absl::Status EngineImpl::AddGradient(ParameterId id, std::span<const std::byte> gradient,
                                     DataType type) {
  const Lock lock(mutex_);
  return Answer(AddGradientOn(id, gradient, type, nullptr));
}

absl::Status EngineImpl::AddGradient(ParameterId id, std::span<const std::byte> gradient,
                                     DataType type, StreamHandle stream) {
  const Lock lock(mutex_);
  GEMINID_ASSIGN_OR_RETURN(Stream* const on, StreamOf(stream));
  return Answer(AddGradientOn(id, gradient, type, on));
}

}  // namespace geminid::zero
