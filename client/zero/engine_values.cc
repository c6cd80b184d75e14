// Parameters as values: from the trainer to this rank's shard, and back.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/zero/engine_impl.h"

namespace geminid::zero {

absl::Status EngineImpl::CheckNew(const char* call) {
  if (!resumed_.has_value()) return CheckNotStarted(call);
  return absl::FailedPreconditionError(
      absl::StrCat(call, " would overwrite what this engine goes on from, step ", resumed_->step,
                   " of its predecessor (Engine::resumed); leave it out"));
}

absl::Status EngineImpl::Initialize(const Fill& fill) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(CheckNew("Initialize"));
  store_->SetResumable(false);
  absl::Status filled;
  std::vector<float> values;
  for (uint32_t tensor = 0; tensor < parameters_.size(); ++tensor) {
    values.assign(elements_[tensor], 0.0f);
    filled = fill(ParameterId{tensor}, values);
    if (!filled.ok()) break;
    for (const ShardPart& part : PartsOf(ParameterId{tensor})) {
      const absl::Status status = values_->Write(
          part, StateKind::kMaster, std::span(values).subspan(part.tensor_offset, part.elements));
      if (!status.ok()) return Remember(status);
    }
  }
  return AgreeOnFill("Initialize", filled);
}

absl::Status EngineImpl::InitializeShards(const FillRange& fill) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(CheckNew("InitializeShards"));
  store_->SetResumable(false);
  absl::Status filled;
  std::vector<float> values;
  for (uint32_t tensor = 0; tensor < parameters_.size() && filled.ok(); ++tensor) {
    for (const ShardPart& part : PartsOf(ParameterId{tensor})) {
      values.assign(part.elements, 0.0f);
      filled = fill(ParameterId{tensor}, part.tensor_offset, values);
      if (!filled.ok()) break;
      const absl::Status status = values_->Write(part, StateKind::kMaster, values);
      if (!status.ok()) return Remember(status);
    }
  }
  return AgreeOnFill("InitializeShards", filled);
}

// The engine goes on, whoever failed: nothing was moved, and values can be set again.
absl::Status EngineImpl::AgreeOnFill(const char* call, const absl::Status& filled) {
  std::optional<uint32_t> mine;
  if (!filled.ok()) mine = static_cast<uint32_t>(links_->rank());
  const auto first = links_->agreement().Least(mine, static_cast<uint32_t>(links_->world_size()));
  if (!first.ok()) return Remember(first.status());
  if (!filled.ok() || !first->has_value()) return filled;
  return absl::AbortedError(absl::StrCat(
      call, ": the values of rank ", **first,
      " could not be had, it says why; call it again on all ranks, load a checkpoint, or end"));
}

absl::Status EngineImpl::LoadShard(uint32_t tensor, std::span<int32_t> bits) const {
  std::vector<float> values;
  for (const ShardPart& part : PartsOf(ParameterId{tensor})) {
    values.resize(part.elements);
    GEMINID_RETURN_IF_ERROR(values_->Read(part, StateKind::kMaster, values));
    std::memcpy(&bits[part.tensor_offset], values.data(), part.elements * sizeof(float));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> EngineImpl::ReadParameter(ParameterId id) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(Health());
  GEMINID_RETURN_IF_ERROR(CheckId(id));
  if (director_->in_micro_batch() || open_.norm.has_value()) {
    return absl::FailedPreconditionError("ReadParameter is for between steps");
  }
  if (absl::Status status = updater_->WaitIdle(options_.timeout); !status.ok()) {
    return Remember(status);
  }
  const uint32_t tensor = static_cast<uint32_t>(id);
  // Each element is in one rank's shard and zero elsewhere, so adding bit patterns as integers
  // brings every one, negative zero and NaN included, to all ranks unchanged.
  std::vector<int32_t> bits(elements_[tensor], 0);
  absl::Status status = LoadShard(tensor, bits);
  if (!status.ok()) return Remember(status);
  status = links_->control()->AllReduce(bits, bits, collectives::ReduceOp::kSum);
  if (!status.ok()) return Remember(status);
  std::vector<float> values(bits.size());
  std::memcpy(values.data(), bits.data(), bits.size() * sizeof(float));
  return values;
}

}  // namespace geminid::zero
