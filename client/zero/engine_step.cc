// The end of micro-batches and steps: gradients, agreement, commit.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/src/session_internal.h"
#include "client/zero/engine_impl.h"
#include "proto/shm/commit_layout.h"

namespace geminid::zero {
namespace {

// Keeps the clip coefficient finite for a gradient of zeros, as is usual.
constexpr double kClipEpsilon = 1e-6;

}  // namespace

absl::Status EngineImpl::BeginMicroBatch() {
  GEMINID_RETURN_IF_ERROR(Health());
  if (in_micro_batch_) {
    if (absl::Status status = EndMicroBatch(); !status.ok()) return Remember(status);
  }
  if (absl::Status status = LeaveMoment(); !status.ok()) return Remember(status);
  if (micro_batch_ == options_.accumulate) {
    return Remember(absl::FailedPreconditionError(absl::StrCat(
        "all ", options_.accumulate, " micro-batches of the step are done; call Step")));
  }
  sampling_ = !plan_.has_value();
  following_plan_ = plan_.has_value();
  recorder_.Clear();
  moment_ = 0;
  in_micro_batch_ = true;
  BeginMeasuring();
  return absl::OkStatus();
}

absl::Status EngineImpl::EndMicroBatch() {
  GEMINID_RETURN_IF_ERROR(LeaveMoment());
  EndMeasuring();
  GEMINID_RETURN_IF_ERROR(ReduceUnusedParameters());
  for (ChunkUse& use : chunks_) use.reduced = false;
  in_micro_batch_ = false;
  ++micro_batch_;
  ++micro_batches_run_;
  if (following_plan_) {
    bound_bytes_ += plan_->transfer_bytes_lower_bound;
  } else {
    ++unplanned_micro_batches_;
  }
  if (sampling_ && !recorder_.empty()) {
    sampling_ = false;
    return MakePlanFromSample();
  }
  absl::StatusOr<ReplanCause> cause = JudgePlan();
  if (!cause.ok()) return cause.status();
  return *cause == ReplanCause::kNone ? absl::OkStatus() : PlanAgain(*cause);
}

// A trained parameter that no operator gave a gradient has a gradient of zeros: all ranks reduce
// all chunks, whatever each of them used.
absl::Status EngineImpl::ReduceUnusedParameters() {
  for (uint32_t c = 0; c < chunks_.size(); ++c) {
    ChunkUse& use = chunks_[c];
    if (use.reduced || !layout_.chunks[c].trainable) continue;
    following_plan_ = false;
    const std::vector<uint32_t> chunk = {c};
    GEMINID_RETURN_IF_ERROR(GatherOnDemand(chunk));
    GEMINID_RETURN_IF_ERROR(HoldChunks(chunk));
    for (uint32_t tensor : layout_.chunks[c].tensors) {
      const ParameterId id{tensor};
      const shm::ChunkState state = use.states.state(SlotOf(id));
      if (state == shm::ChunkState::kReadyForReduce) continue;
      if (use.gradients_written[SlotOf(id)] == 0) {
        uint64_t elements = 1;
        for (int64_t dimension : parameters_[tensor].shape) {
          elements *= static_cast<uint64_t>(dimension);
        }
        std::memset(const_cast<std::byte*>(AddressOf(id)), 0, elements * element_bytes());
      }
      absl::Status status;
      if (state == shm::ChunkState::kHold) {
        status.Update(MoveTensor(tensor, shm::ChunkState::kCompute));
        status.Update(MoveTensor(tensor, shm::ChunkState::kHoldAfterBackward));
      }
      status.Update(MoveTensor(tensor, shm::ChunkState::kReadyForReduce));
      if (!status.ok()) return status;
    }
    GEMINID_RETURN_IF_ERROR(ReleaseChunk(Pass::kBackward, c));
  }
  return absl::OkStatus();
}

// The commit barrier: a rank that passes it knows that every rank holds all its reduced gradients.
absl::StatusOr<double> EngineImpl::GlobalGradientNorm() {
  std::vector<double> squares = {mover_->GradientSquares()};
  absl::Status status = Waited(StallCause::kCollective, [&] {
    return control_communicator_->AllReduce(squares, squares, collectives::ReduceOp::kSum);
  });
  if (!status.ok()) return status;
  return std::sqrt(squares[0]) / loss_scaler_.scale();
}

absl::StatusOr<StepResult> EngineImpl::Step(const StepInput& input) {
  GEMINID_RETURN_IF_ERROR(Health());
  if (!in_micro_batch_ || micro_batch_ + 1 != options_.accumulate) {
    return Remember(absl::FailedPreconditionError(
        absl::StrCat("Step needs ", options_.accumulate, " micro-batches; ",
                     micro_batch_ + (in_micro_batch_ ? 1 : 0), " were begun")));
  }
  if (!std::isfinite(input.learning_rate) || input.learning_rate < 0) {
    return Remember(
        absl::InvalidArgumentError("the learning rate must be finite and not negative"));
  }
  if (absl::Status status = EndMicroBatch(); !status.ok()) return Remember(status);
  if (absl::Status status = mover_->WaitIdle(); !status.ok()) return Remember(status);
  absl::Status updated = Waited(StallCause::kUpdate, [&] { return updater_->WaitIdle(); });
  if (!updated.ok()) return Remember(updated);
  absl::StatusOr<double> norm = GlobalGradientNorm();
  if (!norm.ok()) return Remember(norm.status());

  StepResult result;
  result.step = ++step_;
  result.gradient_norm = *norm;
  result.loss_scale = loss_scaler_.scale();
  result.overflow = !std::isfinite(*norm);
  if (options_.clip_norm > 0 && !result.overflow) {
    result.clip_coefficient = std::min(1.0, options_.clip_norm / (*norm + kClipEpsilon));
  }
  if (!result.overflow) {
    ++updates_;
    if (absl::Status status = PrepareUpdate(input, result); !status.ok()) return Remember(status);
  }
  loss_scaler_.OnStep(result.overflow);
  Commit(input, result);
  session_->SetStep(step_);
  mover_->ClearGradientSquares();
  micro_batch_ = 0;
  return result;
}

absl::Status EngineImpl::PrepareUpdate(const StepInput& input, const StepResult& result) {
  kernels::StepScalars scalars;
  scalars.step = updates_;
  scalars.learning_rate = input.learning_rate;
  scalars.grad_scale = result.clip_coefficient / result.loss_scale;
  scalars.gradient_norm = result.clip_coefficient * result.gradient_norm;
  return optimizer_->Prepare(scalars, *store_, control_communicator_.get());
}

// The record first, then the granules: a crash in between leaves the scalars that the remaining
// granules are rolled forward with.
void EngineImpl::Commit(const StepInput& input, const StepResult& result) {
  shm::CommitRecord record = {};
  record.step = result.step;
  record.gradient_norm = result.gradient_norm;
  record.loss_scale = result.loss_scale;
  record.learning_rate = input.learning_rate;
  record.clip_coefficient = result.clip_coefficient;
  std::copy(input.random_state.begin(), input.random_state.end(), record.random_state);
  record.data_position = input.data_position;
  record.updates = updates_;
  record.next_loss_scale = loss_scaler_.state().scale;
  record.good_steps = loss_scaler_.state().good_steps;
  record.overflows = loss_scaler_.state().overflows;
  record.overflow = result.overflow ? 1 : 0;
  epoch_ = shm::WriteRecord(CommitSegmentOf(*session_), record);
  if (result.overflow) return;
  store_->FlipTensorState(epoch_);
  updater_->Start(epoch_, update_order_);
}

}  // namespace geminid::zero
