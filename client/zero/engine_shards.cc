// State in and out by shards: what checkpoints are made of.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/zero/engine_impl.h"

namespace geminid::zero {

std::vector<ShardPart> EngineImpl::PartsOf(ParameterId id) const {
  const auto tensor = static_cast<uint32_t>(id);
  return PartsOfTensor(layout_, tensor, elements_[tensor], communicator_->Rank());
}

std::vector<ShardRange> EngineImpl::ShardOf(ParameterId id) const {
  std::vector<ShardRange> ranges;
  if (static_cast<uint32_t>(id) >= parameters_.size()) return ranges;
  for (const ShardPart& part : PartsOf(id)) {
    const bool goes_on =
        !ranges.empty() && ranges.back().offset + ranges.back().elements == part.tensor_offset;
    if (goes_on) {
      ranges.back().elements += part.elements;
    } else {
      ranges.push_back({part.tensor_offset, part.elements});
    }
  }
  return ranges;
}

bool EngineImpl::HasState(ParameterId id, StateKind kind) const {
  if (static_cast<uint32_t>(id) >= parameters_.size()) return false;
  const ChunkShape& chunk = layout_.chunks[ChunkOf(id)];
  return values_->Has(chunk.first_granule, kind);
}

absl::Status EngineImpl::CheckState(ParameterId id, StateKind kind) const {
  if (HasState(id, kind)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("parameter ", static_cast<uint32_t>(id),
                                                 " does not exist or has no such state"));
}

absl::Status EngineImpl::CheckNotStarted(const char* call) {
  GEMINID_RETURN_IF_ERROR(Health());
  if (micro_batches_run_ > 0 || director_->in_micro_batch()) {
    return absl::FailedPreconditionError(
        absl::StrCat(call, " must come before the first micro-batch"));
  }
  GEMINID_RETURN_IF_ERROR(CheckNothingOpen(call));
  return Remember(Carry(director_->DropAll()));
}

absl::Status EngineImpl::CheckBetweenSteps(const char* call) {
  GEMINID_RETURN_IF_ERROR(Health());
  if (!director_->in_micro_batch() && open_.micro_batches == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(call, " is for between steps: after Step, before BeginMicroBatch"));
}

// The parts of these elements, all of which must be here.
absl::StatusOr<std::vector<ShardPart>> EngineImpl::PiecesOf(ParameterId id, uint64_t offset,
                                                            uint64_t elements) const {
  std::vector<ShardPart> pieces;
  uint64_t found = 0;
  for (const ShardPart& part : PartsOf(id)) {
    const uint64_t begin = std::max(offset, part.tensor_offset);
    const uint64_t end = std::min(offset + elements, part.tensor_offset + part.elements);
    if (begin >= end) continue;
    ShardPart piece = part;
    piece.tensor_offset = begin;
    piece.granule_offset += begin - part.tensor_offset;
    piece.elements = end - begin;
    found += piece.elements;
    pieces.push_back(piece);
  }
  if (found == elements) return pieces;
  return absl::InvalidArgumentError(
      absl::StrCat("elements ", offset, " to ", offset + elements, " of '",
                   parameters_[static_cast<uint32_t>(id)].name,
                   "' are not all in this rank's shard; ShardOf says what is"));
}

absl::Status EngineImpl::ReadShard(ParameterId id, StateKind kind, uint64_t offset,
                                   std::span<float> values) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(CheckBetweenSteps("ReadShard"));
  GEMINID_RETURN_IF_ERROR(CheckState(id, kind));
  GEMINID_ASSIGN_OR_RETURN(const std::vector<ShardPart> pieces,
                           PiecesOf(id, offset, values.size()));
  absl::Status status = updater_->WaitIdle(options_.timeout);
  for (const ShardPart& piece : pieces) {
    const auto to = values.subspan(piece.tensor_offset - offset, piece.elements);
    if (status.ok()) status = values_->Read(piece, kind, to);
  }
  return Remember(status);
}

// State is about to be changed by other means than the update. A snapshot that is being taken reads
// it.
absl::Status EngineImpl::ForgetDeviceCopies() {
  if (absl::Status ended = snapshotter_->Wait(options_.timeout); absl::IsDeadlineExceeded(ended)) {
    return ended;
  }
  GEMINID_RETURN_IF_ERROR(updater_->WaitIdle(options_.timeout));
  GEMINID_RETURN_IF_ERROR(Carry(director_->ChangeWeights()));
  GEMINID_RETURN_IF_ERROR(Carry(director_->DropAll()));
  return mover_->WaitIdle();
}

absl::Status EngineImpl::WriteShard(ParameterId id, StateKind kind, uint64_t offset,
                                    std::span<const float> values) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(CheckBetweenSteps("WriteShard"));
  GEMINID_RETURN_IF_ERROR(CheckNothingOpen("WriteShard"));
  GEMINID_RETURN_IF_ERROR(CheckState(id, kind));
  GEMINID_ASSIGN_OR_RETURN(const std::vector<ShardPart> pieces,
                           PiecesOf(id, offset, values.size()));
  absl::Status status = ForgetDeviceCopies();
  store_->SetResumable(false);
  for (const ShardPart& piece : pieces) {
    const auto from = values.subspan(piece.tensor_offset - offset, piece.elements);
    if (status.ok()) status = values_->Write(piece, kind, from);
  }
  return Remember(status);
}

// --- gradients -----------------------------------------------------------------------------------

absl::Status EngineImpl::CheckGradientCall(const char* call, ParameterId id) {
  GEMINID_RETURN_IF_ERROR(Health());
  GEMINID_RETURN_IF_ERROR(CheckId(id));
  const Parameter& parameter = parameters_[static_cast<uint32_t>(id)];
  if (!open_.norm.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat(call, " is for between GradientNorm and Step"));
  }
  if (parameter.trainable && !updates_in_backward()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "parameter '", parameter.name,
      "' has no gradient: ", parameter.trainable ? "its update is made already" : "it is frozen"));
}

absl::Status EngineImpl::ReadGradient(ParameterId id, uint64_t offset, std::span<float> values) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(CheckGradientCall("ReadGradient", id));
  GEMINID_ASSIGN_OR_RETURN(const std::vector<ShardPart> pieces,
                           PiecesOf(id, offset, values.size()));
  for (const ShardPart& piece : pieces) {
    const auto to = values.subspan(piece.tensor_offset - offset, piece.elements);
    const absl::Status status = values_->ReadGradient(piece, to);
    if (!status.ok()) return Remember(status);
  }
  const double scale = GradientFactor() / loss_scaler_.scale();
  for (float& value : values) value = static_cast<float>(value * scale);
  return absl::OkStatus();
}

absl::Status EngineImpl::WriteGradient(ParameterId id, uint64_t offset,
                                       std::span<const float> values) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(CheckGradientCall("WriteGradient", id));
  GEMINID_ASSIGN_OR_RETURN(const std::vector<ShardPart> pieces,
                           PiecesOf(id, offset, values.size()));
  const double scale = GradientFactor() / loss_scaler_.scale();
  std::vector<float> kept(values.begin(), values.end());
  for (float& value : kept) value = static_cast<float>(value / scale);
  open_.gradients_written = true;
  for (const ShardPart& piece : pieces) {
    const auto from = std::span(kept).subspan(piece.tensor_offset - offset, piece.elements);
    const absl::Status status = values_->WriteGradient(piece, from);
    if (!status.ok()) return Remember(status);
  }
  return absl::OkStatus();
}

// --- runs ----------------------------------------------------------------------------------------

absl::Status EngineImpl::Restore(const Progress& progress) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(CheckBetweenSteps("Restore"));
  GEMINID_RETURN_IF_ERROR(CheckNothingOpen("Restore"));
  GEMINID_ASSIGN_OR_RETURN(const std::vector<std::byte> tensor_state,
                           optimizer_->Adopt(progress, parameters_));
  const double scale = progress.loss_scaler.scale;
  if (!std::isfinite(scale) || scale <= 0 || progress.updates > progress.step) {
    return absl::InvalidArgumentError(absl::StrCat("a run cannot stand at step ", progress.step,
                                                   " with ", progress.updates,
                                                   " updates and the loss scale ", scale));
  }
  absl::Status status = ForgetDeviceCopies();
  store_->SetResumable(false);
  if (status.ok() && !tensor_state.empty()) status = store_->WriteTensorState(tensor_state);
  if (!status.ok()) return Remember(status);
  optimizer_->GoOnFrom(tensor_state);
  loss_scaler_.Restore(progress.loss_scaler);
  committed_.step = progress.step;
  committed_.updates = progress.updates;
  begun_.reset();  // its updates have numbers of their own
  session_->SetStep(committed_.step);
  return absl::OkStatus();
}

absl::StatusOr<Progress> EngineImpl::GetProgress() {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(CheckBetweenSteps("GetProgress"));
  Progress progress;
  progress.step = committed_.step;
  progress.updates = committed_.updates;
  progress.loss_scaler = loss_scaler_.state();
  const uint64_t bytes = optimizer_->tensor_state_bytes();
  if (bytes > 0) {
    progress.tensor_state.resize(bytes);
    const absl::Status status = store_->ReadTensorState(progress.tensor_state);
    if (!status.ok()) return Remember(status);
  }
  return progress;
}

absl::Status EngineImpl::StartSnapshot(std::shared_ptr<SnapshotSink> sink) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(CheckBetweenSteps("StartSnapshot"));
  // First what is updated first, so that the updater seldom comes before.
  std::vector<uint32_t> order = update_order_;
  std::vector<bool> listed(layout_.chunks.size(), false);
  for (uint32_t chunk : order) listed[chunk] = true;
  for (uint32_t chunk = 0; chunk < listed.size(); ++chunk) {
    if (!listed[chunk]) order.push_back(chunk);
  }
  return snapshotter_->Start(committed_.epoch, std::move(order), updater_.get(), std::move(sink));
}

absl::Status EngineImpl::WaitSnapshot() { return snapshotter_->Wait(options_.timeout); }

}  // namespace geminid::zero
