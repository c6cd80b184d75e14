// Operators, and what happens between them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "client/zero/engine_impl.h"
#include "client/zero/extent.h"

namespace geminid::zero {
absl::StatusOr<Operation> EngineImpl::Use(Pass pass, std::span<const ParameterId> parameters) {
  GEMINID_RETURN_IF_ERROR(Health());
  for (ParameterId id : parameters) {
    if (static_cast<uint32_t>(id) >= parameters_.size()) {
      return Remember(absl::InvalidArgumentError(
          absl::StrCat("there is no parameter ", static_cast<uint32_t>(id))));
    }
  }
  auto state = std::make_unique<Operation::State>();
  state->engine = this;
  state->pass = pass;
  state->parameters.assign(parameters.begin(), parameters.end());
  state->chunks = ChunksOf(parameters);
  absl::Status status = EnterMoment(pass, state->chunks);
  if (status.ok()) status = HoldChunks(state->chunks);
  for (ParameterId id : parameters) {
    if (!status.ok()) break;
    status = MoveTensor(static_cast<uint32_t>(id), shm::ChunkState::kCompute);
  }
  if (!status.ok()) {
    state->finished = true;
    return Remember(status);
  }
  moment_began_ = clock_();
  return MakeOperation(std::move(state));
}

std::vector<uint32_t> EngineImpl::ChunksOf(std::span<const ParameterId> parameters) const {
  std::vector<uint32_t> chunks;
  for (ParameterId id : parameters) chunks.push_back(ChunkOf(id));
  std::sort(chunks.begin(), chunks.end());
  chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
  return chunks;
}

// --- moments -------------------------------------------------------------------------------------

absl::Status EngineImpl::EnterMoment(Pass pass, const std::vector<uint32_t>& chunks) {
  if ((pass == Pass::kEvaluate) == in_micro_batch_) {
    return absl::FailedPreconditionError(
        in_micro_batch_ ? "evaluation must come between steps: after Step, before BeginMicroBatch"
                        : "call BeginMicroBatch before the first forward operator");
  }
  GEMINID_RETURN_IF_ERROR(LeaveMoment());
  in_moment_ = true;
  session_->BeginMoment(moment_);
  if (in_micro_batch_) recorder_.BeginMoment(chunks);
  if (following_plan_) {
    const bool as_planned =
        moment_ < planned_chunks_.size() &&
        std::includes(planned_chunks_[moment_].begin(), planned_chunks_[moment_].end(),
                      chunks.begin(), chunks.end());
    if (as_planned) return FollowPlan(chunks);
    // The trainer does something else than it did in the sample: go on without a plan, and record
    // the next micro-batch as the new sample.
    following_plan_ = false;
    order_changed_ = true;
    plan_.reset();
    GEMINID_RETURN_IF_ERROR(mover_->WaitIdle());
  }
  return GatherOnDemand(chunks);
}

absl::Status EngineImpl::LeaveMoment() {
  if (!in_moment_) return absl::OkStatus();
  in_moment_ = false;
  const uint64_t peak_extent = workspace_->TakePeakExtent();
  if (in_micro_batch_) {
    moment_ended_ = clock_();
    recorder_.NoteCompute(absl::ToDoubleSeconds(moment_ended_ - moment_began_));
    recorder_.NoteWorkspace(peak_extent);
  }
  if (following_plan_) {
    DropPlanned();
  } else {
    DropIdleChunks();
  }
  if (in_micro_batch_) ++moment_;
  return absl::OkStatus();
}

absl::Status EngineImpl::FollowPlan(const std::vector<uint32_t>& chunks) {
  absl::Status status = SetReservation(
      std::max(planned_moments_[moment_].workspace_bytes, workspace_->extent_bytes()));
  if (!status.ok()) return status;
  for (const PlannedLoad& load : plan_->moments[moment_].loads) {
    if (!mover_->NeedsGather(load.index)) continue;
    const bool now = load.deadline_moment == moment_;
    mover_->Gather(load.index, plan_base_bytes_ + load.device_offset,
                   now ? TransferCause::kDemand : TransferCause::kPrefetch);
  }
  for (uint32_t chunk : chunks) {
    if (status = mover_->WaitResident(chunk); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Without a plan: everything in motion comes to rest, then what is missing is gathered wherever
// there is room. Every rank does the same, so the collectives meet.
absl::Status EngineImpl::GatherOnDemand(const std::vector<uint32_t>& chunks) {
  GEMINID_RETURN_IF_ERROR(mover_->WaitIdle());
  GEMINID_RETURN_IF_ERROR(SetReservation(workspace_->extent_bytes()));
  for (uint32_t chunk : chunks) {
    if (mover_->NeedsGather(chunk)) mover_->Gather(chunk, std::nullopt, TransferCause::kDemand);
  }
  for (uint32_t chunk : chunks) {
    if (absl::Status status = mover_->WaitResident(chunk); !status.ok()) {
      if (!absl::IsResourceExhausted(status)) return status;
      uint64_t needed = 0;
      for (uint32_t other : chunks) {
        needed += RoundUpToExtent(layout_.chunks[other].elements * element_bytes());
      }
      return absl::ResourceExhaustedError(absl::StrCat(
          "the model does not fit: operator ", moment_, " needs ", base::FormatBytes(needed),
          " of gathered weights beside ", base::FormatBytes(workspace_->extent_bytes()),
          " of activations and ", base::FormatBytes(store_->device_bytes()),
          " of state in a device arena of ", base::FormatBytes(session_->arena_bytes()),
          "; use a larger --device-memory, a smaller batch or context, or more ranks"));
    }
  }
  return absl::OkStatus();
}

// --- what an operator holds ----------------------------------------------------------------------

absl::Status EngineImpl::HoldChunks(const std::vector<uint32_t>& chunks) {
  for (uint32_t chunk : chunks) {
    ChunkUse& use = chunks_[chunk];
    if (use.holders++ > 0) continue;
    use.lease = session_->TryLease(gathered_[chunk]);
    if (!use.lease.has_value()) {
      return absl::InternalError(
          absl::StrCat("chunk ", chunk, " is on the device but could not be leased"));
    }
    if (!use.announced) session_->Transition(gathered_[chunk], ChunkState::kHold);
    use.announced = true;
    session_->Transition(gathered_[chunk], ChunkState::kCompute);
  }
  return absl::OkStatus();
}

absl::Status EngineImpl::MoveTensor(uint32_t tensor, shm::ChunkState to) {
  const ParameterId id{tensor};
  return chunks_[ChunkOf(id)].states.Move(SlotOf(id), to, parameters_[tensor].name);
}

const std::byte* EngineImpl::AddressOf(ParameterId id) const {
  const TensorPlace& place = layout_.tensors[static_cast<uint32_t>(id)];
  return chunks_[place.chunk].lease->data + place.offset * element_bytes();
}

bool EngineImpl::GradientAccumulates(ParameterId id) const {
  return chunks_[ChunkOf(id)].gradients_written[SlotOf(id)] > 0;
}

absl::Status EngineImpl::GradientWritten(Pass pass, ParameterId id) {
  const uint32_t tensor = static_cast<uint32_t>(id);
  const Parameter& parameter = parameters_[tensor];
  if (pass != Pass::kBackward || !parameter.trainable) {
    return Remember(absl::FailedPreconditionError(
        absl::StrCat("parameter '", parameter.name, "' takes no gradient here: ",
                     parameter.trainable ? "this is not the backward pass" : "it is frozen")));
  }
  ChunkUse& use = chunks_[ChunkOf(id)];
  absl::Status status = MoveTensor(tensor, shm::ChunkState::kHoldAfterBackward);
  if (!status.ok()) return Remember(status);
  use.holds_gradient = true;
  recorder_.NoteGradient(ChunkOf(id));
  if (++use.gradients_written[SlotOf(id)] < parameter.backward_uses) return absl::OkStatus();
  return Remember(MoveTensor(tensor, shm::ChunkState::kReadyForReduce));
}

absl::Status EngineImpl::FinishOperation(Pass pass, std::span<const ParameterId> parameters,
                                         std::span<const uint32_t> chunks) {
  for (ParameterId id : parameters) {
    const uint32_t tensor = static_cast<uint32_t>(id);
    if (chunks_[ChunkOf(id)].states.state(SlotOf(id)) != shm::ChunkState::kCompute) continue;
    const bool backward = pass == Pass::kBackward && parameters_[tensor].trainable;
    absl::Status status =
        MoveTensor(tensor, backward ? shm::ChunkState::kHoldAfterBackward : shm::ChunkState::kHold);
    if (!status.ok()) return Remember(status);
  }
  for (uint32_t chunk : chunks) {
    if (absl::Status status = ReleaseChunk(pass, chunk); !status.ok()) return Remember(status);
  }
  return absl::OkStatus();
}

absl::Status EngineImpl::ReleaseChunk(Pass pass, uint32_t chunk) {
  ChunkUse& use = chunks_[chunk];
  if (--use.holders > 0) return absl::OkStatus();
  use.lease.reset();
  const bool backward = pass == Pass::kBackward && layout_.chunks[chunk].trainable;
  session_->Transition(gathered_[chunk],
                       backward ? ChunkState::kHoldAfterBackward : ChunkState::kHold);
  if (use.states.CanReduce()) ReduceChunk(chunk);
  return absl::OkStatus();
}

void EngineImpl::ReduceChunk(uint32_t chunk) {
  ChunkUse& use = chunks_[chunk];
  for (uint32_t tensor : layout_.chunks[chunk].tensors) {
    // READY_FOR_REDUCE to HOLD cannot fail, and the gradient's life ends here for the trainer.
    (void)MoveTensor(tensor, shm::ChunkState::kHold);
  }
  std::fill(use.gradients_written.begin(), use.gradients_written.end(), 0);
  use.holds_gradient = false;
  use.reduced = true;
  session_->Transition(gathered_[chunk], ChunkState::kReadyForReduce);
  session_->Transition(gathered_[chunk], ChunkState::kHold);
  recorder_.NoteReduced(chunk);
  mover_->Reduce(chunk, micro_batch_ == 0, micro_batch_ + 1 == options_.accumulate);
}

// --- drops and reservations ----------------------------------------------------------------------

bool EngineImpl::MayDrop(uint32_t chunk) const {
  const ChunkUse& use = chunks_[chunk];
  return use.holders == 0 && !use.holds_gradient && mover_->IsResident(chunk);
}

void EngineImpl::DropIdleChunks() {
  for (uint32_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    const bool planned = plan_.has_value() && resident_at_start_[chunk];
    if (!planned && MayDrop(chunk)) mover_->Drop(chunk);
  }
}

void EngineImpl::DropPlanned() {
  for (const PlannedDrop& drop : plan_->moments[moment_].drops) {
    if (!drop.becomes_gradient && MayDrop(drop.index)) mover_->Drop(drop.index);
  }
}

absl::Status EngineImpl::SetReservation(uint64_t extent_bytes) {
  const uint64_t wanted = RoundUpToExtent(extent_bytes);
  if (wanted == reserved_bytes_) return absl::OkStatus();
  if (wanted > reserved_bytes_) {
    absl::Status status = mover_->WaitBelow(session_->arena_bytes() - wanted);
    if (status.ok()) {
      status = Waited(StallCause::kDaemon, [&] {
        return session_->ReserveWorkspace(wanted, /*may_evict=*/false).Wait();
      });
    }
    if (!status.ok()) return status;
  } else {
    // In the ring before any request for what it frees; shrinking cannot fail.
    session_->ReserveWorkspace(wanted, /*may_evict=*/false);
  }
  reserved_bytes_ = wanted;
  workspace_->SetReserved(wanted);
  session_->SetWorkspace(workspace_->in_use_bytes());
  return absl::OkStatus();
}

// The trainer allocates more than is reserved: while sampling that is how the sample is taken;
// under a plan it means that the sample was too small, so the next micro-batch is sampled again.
absl::Status EngineImpl::GrowWorkspace(uint64_t extent_bytes) {
  const uint64_t wanted = RoundUpToExtent(extent_bytes);
  if (wanted > session_->arena_bytes()) {
    return absl::ResourceExhaustedError(absl::StrCat("activations of ", base::FormatBytes(wanted),
                                                     " exceed the whole device arena of ",
                                                     base::FormatBytes(session_->arena_bytes())));
  }
  if (following_plan_) workspace_grew_ = true;
  absl::Status status = SetReservation(wanted);
  if (status.ok() || !absl::IsResourceExhausted(status)) return status;
  uint64_t held = meter_.Read().model_bytes;
  return absl::ResourceExhaustedError(
      absl::StrCat("the model does not fit: operator ", moment_, " needs ",
                   base::FormatBytes(wanted), " of activations beside ", base::FormatBytes(held),
                   " of gathered weights and gradients in a device arena of ",
                   base::FormatBytes(session_->arena_bytes()),
                   "; use a larger --device-memory, a smaller batch or context, or more ranks"));
}

}  // namespace geminid::zero
