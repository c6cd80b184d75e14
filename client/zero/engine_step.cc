// The end of micro-batches and steps: gradients, agreement, commit.
#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/zero/crash_points.h"
#include "client/zero/engine_impl.h"
#include "client/zero/optimizer_options.h"
#include "proto/shm/commit_layout.h"

namespace geminid::zero {
namespace {

// Keeps the clip coefficient finite for a gradient of zeros, as is usual.
constexpr double kClipEpsilon = 1e-6;

// NaN for a norm that is NaN.
double ClipCoefficient(double clip_norm, double norm) {
  const double coefficient = clip_norm / (norm + kClipEpsilon);
  return coefficient > 1 ? 1 : coefficient;
}

}  // namespace

absl::Status EngineImpl::CheckNothingOpen(const char* call) const {
  if (!director_->AnythingHeld()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(call, " while an Operation is open; finish all of them first"));
}

absl::Status EngineImpl::BeginStep(const StepInput& input) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(CheckBetweenSteps("BeginStep"));
  GEMINID_RETURN_IF_ERROR(CheckRates(input));
  if (!updates_in_backward()) return absl::OkStatus();
  if (input.clip_norm.value_or(0) > 0) {
    return absl::InvalidArgumentError(
        "a step whose parameters are updated in the backward pass cannot be clipped");
  }
  GEMINID_RETURN_IF_ERROR(links_->agreement().CheckSameFields("BeginStep", FieldsOf(input, 0)));
  const absl::Status status = PrepareUpdate(input, {}, committed_.updates + 1);
  if (!status.ok()) return Remember(status);
  updater_->BeginStep(committed_.epoch + 1);
  begun_ = input;
  return absl::OkStatus();
}

absl::Status EngineImpl::BeginMicroBatch() {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(HealthOnDevice());
  GEMINID_RETURN_IF_ERROR(CheckNothingOpen("BeginMicroBatch"));
  if (updates_in_backward() && !begun_.has_value()) {
    return absl::FailedPreconditionError(
        "parameters are updated in the backward pass: say with BeginStep what with, before "
        "BeginMicroBatch");
  }
  const int begun = open_.micro_batches + (director_->in_micro_batch() ? 1 : 0);
  const bool exactly = options_.accumulate == 1 || sums_gradients();
  if (open_.norm.has_value() || (exactly && begun == MicroBatchesOfStep())) {
    return absl::FailedPreconditionError(
        "the step's micro-batches are done; call Step, or say with Options::accumulate that a step "
        "has several");
  }
  if (director_->in_micro_batch()) {
    if (absl::Status status = EndMicroBatch(false); !status.ok()) return Remember(status);
  }
  Measure();
  absl::Status status = PlanEvaluation(/*end=*/true);
  if (status.ok()) status = Carry(director_->BeginMicroBatch());
  if (!status.ok()) return Remember(status);
  book_->BeginMicroBatch();
  operation_ = 0;
  workspace_grew_ = false;
  evaluated_ = false;
  times_.BeginMicroBatch(/*first_of_step=*/open_.micro_batches == 0, UpdateStall());
  return absl::OkStatus();
}

absl::Status EngineImpl::EndMicroBatch(bool step_ends) {
  times_.EndOnStream();
  Measure();
  GEMINID_RETURN_IF_ERROR(Carry(director_->EndOperators()));
  if (director_->following() && !evaluated_) times_.CountMicroBatch(UpdateStall());
  GEMINID_RETURN_IF_ERROR(ReduceIncomplete(step_ends));
  GEMINID_RETURN_IF_ERROR(Carry(director_->EndMicroBatch()));
  ++open_.micro_batches;
  ++micro_batches_run_;
  if (director_->outcome() == Director::Outcome::kFollowed) {
    uint64_t bound_bytes = plan()->transfer_bytes_lower_bound;
    if (weights_stay() && open_.micro_batches == 1) {
      bound_bytes += BytesGatheredOnce(planned_trace_, staying_weights());
    }
    tally_.CountPlanned(bound_bytes);
  } else {
    tally_.CountUnplanned();
  }
  return PlanIfNeeded(step_ends);
}

// A trained parameter that no operator gave a gradient has a gradient of zeros: all ranks reduce
// all chunks, whatever each of them used. With parts that is so of a step, and of those chunks that
// the micro-batch gave a gradient, on all ranks the same. Sums over micro-batches are reduced with
// the last one, whichever part it is of.
absl::Status EngineImpl::ReduceIncomplete(bool step_ends) {
  const ComputePlace& place = compute_->on_device();
  for (uint32_t c = 0; c < layout_.chunks.size(); ++c) {
    if (book_->IsReduced(c) || !layout_.chunks[c].trainable) continue;
    const bool left_out = step_ends && (sums_gradients() || book_->reductions(c) == 0);
    if (options_.micro_batch_parts > 1 && !book_->HasGradient(c) && !left_out) continue;
    GEMINID_RETURN_IF_ERROR(OpenGradient(c, /*planned=*/false, nullptr));
    GEMINID_RETURN_IF_ERROR(mover_->WaitUnused(book_->StorageOf(c)));
    for (uint32_t tensor : layout_.chunks[c].tensors) {
      if (book_->written(tensor) > 0) continue;
      place.ops->Zero(*place.stream, Address(book_->StorageOf(c), tensor),
                      ElementsOfTensor(tensor) * layout_.chunks[c].element_bytes);
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
  if (!director_->in_micro_batch() && open_.micro_batches == 0) return absl::OkStatus();
  if (updates_in_backward() && book_->reduced() > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the step cannot be given up: of ", book_->reduced(), " of ", layout_.chunks.size(),
        " chunks the parameters are updated; complete it, or go "
        "on from a checkpoint"));
  }
  absl::Status status = SynchronizeStreams();
  Measure();
  if (status.ok() && director_->in_micro_batch()) status = Carry(director_->CancelMicroBatch());
  if (status.ok()) status = mover_->WaitIdle();
  if (!status.ok()) return Remember(status);
  mover_->ClearGradientSquares();
  book_->BeginStep();
  open_ = {};
  return absl::OkStatus();
}

// The commit barrier: a rank that passes it knows that every rank holds all its reduced gradients.
// With it ranks see whether all are given the same for the step.
absl::StatusOr<double> EngineImpl::GlobalGradientNorm(const AgreedFields& step) {
  const FieldsDigest digest = DigestOf(step);
  std::vector<double> sums = {mover_->GradientSquares(), YieldAsked(*session_) ? 1.0 : 0.0};
  const size_t own = sums.size();
  sums.insert(sums.end(), digest.begin(), digest.end());
  GEMINID_RETURN_IF_ERROR(Waited(StallCause::kCollective, [&] {
    return links_->control()->AllReduce(sums, sums, collectives::ReduceOp::kSum);
  }));
  open_.norm = GradientFactor() * (std::sqrt(sums[0]) / loss_scaler_.scale());
  yield_asked_ = sums[1] > 0;
  const std::span added = std::span(sums).subspan(own);
  if (SameOnAll(added, links_->control()->WorldSize())) return *open_.norm;
  return links_->agreement().NameDifference("Step", step);
}

// Ends the last micro-batch, if that has not been done.
absl::StatusOr<double> EngineImpl::NormOfStep(const AgreedFields& step) {
  if (open_.norm.has_value()) return NormAgain(step);
  GEMINID_RETURN_IF_ERROR(SynchronizeStreams());
  GEMINID_RETURN_IF_ERROR(EndMicroBatch(true));
  GEMINID_RETURN_IF_ERROR(mover_->WaitIdle());
  GEMINID_RETURN_IF_ERROR(
      Waited(StallCause::kUpdate, [&] { return updater_->WaitIdle(options_.timeout); }));
  GEMINID_RETURN_IF_ERROR(mover_->FreeSpareBuffers());
  // Of sums, what was reduced is what was measured.
  const bool measured = sums_gradients() || book_->AllReduced(options_.accumulate);
  if (options_.accumulate > 1 && !measured) {
    GEMINID_RETURN_IF_ERROR(mover_->MeasureGradients());
  }
  return GlobalGradientNorm(step);
}

// Ranks do not know of each other whether they wrote to gradients since.
absl::StatusOr<double> EngineImpl::NormAgain(const AgreedFields& step) {
  if (std::exchange(open_.gradients_written, false)) {
    GEMINID_RETURN_IF_ERROR(mover_->MeasureGradients());
  }
  return GlobalGradientNorm(step);
}

absl::StatusOr<double> EngineImpl::GradientNorm() {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(Health());
  GEMINID_RETURN_IF_ERROR(CheckStep("GradientNorm"));
  const absl::StatusOr<double> norm = NormOfStep({{"the call", "GradientNorm"}});
  return norm.ok() ? norm : NotOfStep(norm.status());
}

// What ranks were given differently changes nothing: they may give it again.
absl::Status EngineImpl::NotOfStep(const absl::Status& status) {
  return absl::IsInvalidArgument(status) && open_.norm.has_value() ? status : Remember(status);
}

absl::Status EngineImpl::CheckStep(const char* call) const {
  if (!open_.norm.has_value() && !director_->in_micro_batch()) {
    return absl::FailedPreconditionError(
        absl::StrCat(call, " without a micro-batch; call BeginMicroBatch first"));
  }
  GEMINID_RETURN_IF_ERROR(CheckMicroBatches(call));
  return CheckNothingOpen(call);
}

absl::Status EngineImpl::CheckRates(const StepInput& input) const {
  const auto bad = [](double value) { return !std::isfinite(value) || value < 0; };
  bool any_bad = bad(input.learning_rate);
  for (const GroupInput& group : input.groups) {
    any_bad |= bad(group.learning_rate) || bad(group.weight_decay.value_or(0));
    GEMINID_RETURN_IF_ERROR(WithOwn(options_.optimizer, group).status());
  }
  if (any_bad) {
    return absl::InvalidArgumentError(
        "learning rates and weight decays must be finite and not negative");
  }
  if (options_.all_ranks != nullptr && !input.groups.empty()) {
    return absl::InvalidArgumentError(
        "the ranks of other parts of the model do not know this part's groups; leave "
        "Options::all_ranks out, or groups");
  }
  if (input.gradient_norm.value_or(0) < 0) {
    return absl::InvalidArgumentError("a gradient's norm is not negative");
  }
  if (!(input.clip_norm.value_or(0) >= 0)) {
    return absl::InvalidArgumentError("clip_norm must be 0 (off) or positive");
  }
  for (const Parameter& parameter : parameters_) {
    if (input.groups.empty() || parameter.group < input.groups.size()) continue;
    return absl::InvalidArgumentError(absl::StrCat("parameter '", parameter.name, "' is of group ",
                                                   parameter.group, "; Step has ",
                                                   input.groups.size(), " groups"));
  }
  return absl::OkStatus();
}

absl::StatusOr<StepResult> EngineImpl::Step(const StepInput& input) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(Health());
  GEMINID_RETURN_IF_ERROR(CheckStep("Step"));
  GEMINID_RETURN_IF_ERROR(CheckRates(input));
  GEMINID_RETURN_IF_ERROR(CheckBegun(input));
  const double clip_norm = input.clip_norm.value_or(options_.clip_norm);
  const absl::StatusOr<double> own = NormOfStep(FieldsOf(input, clip_norm));
  if (!own.ok()) return NotOfStep(own.status());
  const double norm = input.gradient_norm.value_or(*own);
  if (!std::isfinite(norm) && options_.not_finite == NotFinite::kFail) return NameNotFinite(norm);
  CrashPoint("step agreed");

  StepResult result;
  result.step = ++committed_.step;
  result.gradient_norm = norm;
  result.loss_scale = loss_scaler_.scale();
  result.overflow = !std::isfinite(norm) && options_.not_finite != NotFinite::kWrite;
  if (clip_norm > 0 && !result.overflow) result.clip_coefficient = ClipCoefficient(clip_norm, norm);
  if (!result.overflow) {
    ++committed_.updates;
    if (!updates_in_backward()) {
      absl::Status status = PrepareUpdate(input, result, committed_.updates);
      if (!status.ok()) return Remember(status);
    }
  }
  if (absl::Status status = Carry(director_->ChangeWeights()); !status.ok()) {
    return Remember(status);
  }
  loss_scaler_.OnStep(result.overflow);
  Commit(input, result);
  begun_.reset();
  session_->SetStep(committed_.step);
  mover_->ClearGradientSquares();
  book_->BeginStep();
  open_ = {};
  if (absl::Status status = YieldIfAsked(); !status.ok()) return Remember(status);
  result.wait_ended = !wait_ended_.ok();
  return result;
}

// All ranks come here together. Each knows which chunks of its own shard are not finite.
absl::Status EngineImpl::NameNotFinite(double norm) {
  const auto first =
      links_->agreement().Least(mover_->NotFinite(), static_cast<uint32_t>(layout_.chunks.size()));
  if (!first.ok()) return Remember(first.status());
  const std::string where =
      first->has_value() ? NamesIn(**first) : "a part of the model that other ranks have";
  return absl::FailedPreconditionError(absl::StrCat(
      "the step's gradient is not finite (its norm is ", norm, "), first in ", where,
      ": nothing has changed. Give the step up with CancelMicroBatch, or train with a lower "
      "learning rate, or say with Options::not_finite that such steps are skipped or written"));
}

// What sums over micro-batches are multiplied by: each was added with 1 / accumulate. A micro-batch
// of one of several parts is that share of one.
double EngineImpl::GradientFactor() const {
  if (options_.accumulate == 1) return 1;
  const double expected = options_.accumulate;
  if (options_.gradient_scale == GradientScale::kSum) return expected;
  return expected * options_.micro_batch_parts / open_.micro_batches;
}

// What the updates were made with is what the step is.
absl::Status EngineImpl::CheckBegun(const StepInput& input) const {
  if (!updates_in_backward()) return absl::OkStatus();
  if (begun_->learning_rate == input.learning_rate && input.clip_norm.value_or(0) == 0 &&
      begun_->groups == input.groups) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "Step must be given what BeginStep was given: the parameters are updated already");
}

absl::Status EngineImpl::PrepareUpdate(const StepInput& input, const StepResult& result,
                                       uint64_t update) {
  std::vector<TensorRates> rates;
  for (const Parameter& parameter : parameters_) {
    TensorRates rate;
    if (!input.groups.empty()) {
      const GroupInput& group = input.groups[parameter.group];
      rate = {.learning_rate = group.learning_rate,
              .weight_decay = group.weight_decay,
              .beta1 = group.beta1,
              .beta2 = group.beta2,
              .epsilon = group.epsilon};
    }
    rates.push_back(rate);
  }
  GEMINID_RETURN_IF_ERROR(LeaveOutUnwritten(&rates));
  StepNote note = {.scalars = {}, .rates = std::move(rates)};
  kernels::StepScalars& scalars = note.scalars;
  scalars.step = update;
  scalars.learning_rate = input.learning_rate;
  scalars.grad_scale = GradientFactor() * (result.clip_coefficient / result.loss_scale);
  scalars.gradient_norm = result.clip_coefficient * result.gradient_norm;
  GEMINID_RETURN_IF_ERROR(optimizer_->Prepare(scalars, note.rates, *store_, links_->Summing()));
  CrashPoint("update prepared");
  if (store_->notes() != nullptr) store_->notes()->Write(committed_.epoch + 1, note);
  CrashPoint("step noted");
  return absl::OkStatus();
}

// Parameters that no rank gave a gradient stay as they are, where that was asked for.
absl::Status EngineImpl::LeaveOutUnwritten(std::vector<TensorRates>* rates) {
  std::vector<uint32_t> asked;
  std::vector<double> written;
  for (uint32_t t = 0; t < parameters_.size(); ++t) {
    if (parameters_[t].update_without_gradient || !parameters_[t].trainable) continue;
    asked.push_back(t);
    written.push_back(book_->written_in_step(t) ? 1.0 : 0.0);
  }
  if (asked.empty()) return absl::OkStatus();
  GEMINID_RETURN_IF_ERROR(links_->agreement().Worst(&written));
  for (size_t i = 0; i < asked.size(); ++i) (*rates)[asked[i]].skip = written[i] == 0;
  return absl::OkStatus();
}

// The record first, then the granules: a crash in between leaves the scalars that the remaining
// granules are rolled forward with. With updates in the backward pass the granules first: some that
// are newer than the record mean a step that cannot be finished any more.
void EngineImpl::Commit(const StepInput& input, const StepResult& result) {
  shm::CommitRecord record = {};
  record.step = result.step;
  record.gradient_norm = result.gradient_norm;
  record.loss_scale = result.loss_scale;
  record.learning_rate = input.learning_rate;
  record.clip_coefficient = result.clip_coefficient;
  std::copy(input.random_state.begin(), input.random_state.end(), record.random_state);
  record.data_position = input.data_position;
  record.updates = committed_.updates;
  record.next_loss_scale = loss_scaler_.state().scale;
  record.good_steps = loss_scaler_.state().good_steps;
  record.overflows = loss_scaler_.state().overflows;
  record.overflow = result.overflow ? 1 : 0;
  committed_.epoch = shm::WriteRecord(store_->commit(), record);
  store_->SetResumable(true);
  CrashPoint("step recorded");
  if (result.overflow || updates_in_backward()) return;
  store_->FlipTensorState(committed_.epoch);
  CrashPoint("tensors flipped");
  updater_->Start(committed_.epoch, update_order_);
}

}  // namespace geminid::zero
