#include "client/zero/step/gradient_step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/src/session_internal.h"
#include "client/zero/basics/crash_points.h"
#include "proto/shm/commit_layout.h"

namespace geminid::zero {
namespace {

// Keeps the clip coefficient finite for a gradient of zeros. A customary value.
constexpr double kClipEpsilon = 1e-6;

// NaN if the norm is NaN.
double ClipCoefficient(double clip_norm, double norm) {
  const double coefficient = clip_norm / (norm + kClipEpsilon);
  return coefficient > 1 ? 1 : coefficient;
}

}  // namespace

GradientStep::GradientStep(const EngineSetup& setup, const Parts& parts,
                           const RunPosition& position)
    : setup_(setup),
      links_(parts.links),
      optimizer_(parts.optimizer),
      store_(parts.store),
      updater_(parts.updater),
      mover_(parts.mover),
      book_(parts.book),
      loss_scaler_(setup.options.loss_scale.value_or(FixedLossScale(1))),
      position_(position) {
  if (position.loss_scaler.has_value()) loss_scaler_.Restore(*position.loss_scaler);
}

absl::Status GradientStep::CheckBegin(const Input& input) {
  if (input.clip_norm.value_or(0) > 0) {
    return absl::InvalidArgumentError(
        "a step whose parameters are updated in the backward pass cannot be clipped");
  }
  GEMINID_RETURN_IF_ERROR(links_->agreement().CheckSameFields("BeginStep", FieldsOf(input, 0)));
  if (!setup_.has_disk()) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(const bool own, IsDiskSpent());
  std::array<double, 1> spent = {own ? 1.0 : 0.0};
  GEMINID_RETURN_IF_ERROR(setup_.Waited(StallCause::kCollective, [&] {
    return links_->control()->AllReduce(spent, spent, collectives::ReduceOp::kSum);
  }));
  asked_.disk_spent = spent[0] > 0;
  return absl::OkStatus();
}

// Some of the last step's writes may still follow. Where they decide, they are waited for.
absl::StatusOr<bool> GradientStep::IsDiskSpent() {
  if (!store_->any_on_disk() || !store_->disk()->IsSpent(/*steps=*/2)) return false;
  GEMINID_RETURN_IF_ERROR(updater_->WaitIdle(setup_.options.timeout));
  return store_->disk()->IsSpent();
}

absl::Status GradientStep::Begin(const Input& input) {
  GEMINID_RETURN_IF_ERROR(PrepareUpdate(input, {}, position_.updates + 1));
  updater_->BeginStep(position_.epoch + 1);
  begun_ = input;
  return absl::OkStatus();
}

// Updates are made already, so the step must be the one that they were made with.
absl::Status GradientStep::CheckBegun(const Input& input) const {
  if (!setup_.updates_in_backward()) return absl::OkStatus();
  if (begun_->learning_rate == input.learning_rate && input.clip_norm.value_or(0) == 0 &&
      begun_->groups == input.groups) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "Step must get the same input as BeginStep: the parameters are updated already");
}

absl::StatusOr<double> GradientStep::Norm(const AgreedFields& step) {
  // A rank does not know whether other ranks wrote gradients since the last norm.
  const bool again = norm_.has_value();
  if (again && std::exchange(gradients_written_, false)) {
    GEMINID_RETURN_IF_ERROR(mover_->MeasureGradients());
  }
  const FieldsDigest digest = DigestOf(step);
  bool spent = false;
  if (!setup_.updates_in_backward()) {
    GEMINID_ASSIGN_OR_RETURN(spent, IsDiskSpent());
  }
  std::vector<double> sums = {mover_->GradientSquares(), YieldAsked(*setup_.session) ? 1.0 : 0.0,
                              mover_->OwnGradientSquares(), spent ? 1.0 : 0.0};
  const size_t own = sums.size();
  sums.insert(sums.end(), digest.begin(), digest.end());
  GEMINID_RETURN_IF_ERROR(setup_.Waited(StallCause::kCollective, [&] {
    return links_->control()->AllReduce(sums, sums, collectives::ReduceOp::kSum);
  }));
  norm_ = Factor() * (std::sqrt(sums[0]) / loss_scaler_.scale());
  asked_.yield = sums[1] > 0;
  const StepGradients measured = GradientsOf(sums[2], sums[0]);
  // After WriteGradient the measurement is invalid, which shows in another norm.
  gradients_ =
      again && measured.square_of_mean != gradients_.square_of_mean ? StepGradients{} : measured;
  asked_.disk_spent = sums[3] > 0;
  const std::span added = std::span(sums).subspan(own);
  if (SameOnAll(added, links_->control()->WorldSize())) return *norm_;
  return links_->agreement().NameDifference("Step", step);
}

// The factor for sums over micro-batches, which were added up with 1 / accumulate. A micro-batch of
// one of several parts counts as that fraction of a whole one.
double GradientStep::Factor() const {
  if (setup_.options.accumulate == 1) return 1;
  const double expected = setup_.options.accumulate;
  if (setup_.options.gradient_scale == GradientScale::kSum) return expected;
  return expected * setup_.options.micro_batch_parts / micro_batches_;
}

StepGradients GradientStep::GradientsOf(double own_squares, double reduced_squares) const {
  if (!mover_->measures_own_gradients() || micro_batches_ == 0) return {};
  const auto ranks = static_cast<uint64_t>(links_->control()->WorldSize());
  const uint64_t count = ranks * static_cast<uint64_t>(micro_batches_);
  // The reduced gradients are the sum over micro-batches, each divided by `accumulate`.
  const double to_mean = static_cast<double>(setup_.options.accumulate) / micro_batches_;
  const double scale = loss_scaler_.scale() * loss_scaler_.scale();
  return {.count = count,
          .mean_square = own_squares / static_cast<double>(count) / scale,
          .square_of_mean = to_mean * to_mean * reduced_squares / scale};
}

// Each rank knows which chunks of its own shard are not finite.
absl::StatusOr<std::string> GradientStep::WhereNotFinite() {
  GEMINID_ASSIGN_OR_RETURN(
      const std::optional<uint32_t> first,
      links_->agreement().Least(mover_->NotFinite(),
                                static_cast<uint32_t>(setup_.layout.chunks.size())));
  return first.has_value() ? setup_.NamesIn(*first) : "a part of the model that other ranks have";
}

StepResult GradientStep::Decide(double norm, double clip_norm, double gradient_scale) {
  StepResult result;
  result.step = ++position_.step;
  result.gradient_norm = norm;
  result.loss_scale = loss_scaler_.scale() * gradient_scale;
  result.overflow = !std::isfinite(norm) && setup_.options.not_finite != NotFinite::kWrite;
  if (clip_norm > 0 && !result.overflow) result.clip_coefficient = ClipCoefficient(clip_norm, norm);
  if (!result.overflow) ++position_.updates;
  return result;
}

absl::Status GradientStep::Prepare(const Input& input, const StepResult& result) {
  // Values that the trainer set: once the step is recorded, a replacement reads them from disk.
  if (store_->any_on_disk()) GEMINID_RETURN_IF_ERROR(store_->disk()->Flush());
  if (result.overflow || setup_.updates_in_backward()) return absl::OkStatus();
  return PrepareUpdate(input, result, position_.updates);
}

absl::Status GradientStep::PrepareUpdate(const Input& input, const StepResult& result,
                                         uint64_t update) {
  std::vector<TensorRates> rates;
  for (const Parameter& parameter : setup_.parameters) {
    TensorRates rate;
    if (!input.groups.empty()) {
      const Engine::GroupInput& group = input.groups[parameter.group];
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
  scalars.grad_scale = Factor() * (result.clip_coefficient / result.loss_scale);
  scalars.gradient_norm = result.clip_coefficient * result.gradient_norm;
  GEMINID_RETURN_IF_ERROR(optimizer_->Prepare(scalars, note.rates, *store_, links_->Summing()));
  CrashPoint("update prepared");
  if (store_->notes() != nullptr) store_->notes()->Write(position_.epoch + 1, note);
  CrashPoint("step noted");
  return absl::OkStatus();
}

// Where the trainer asked for it, parameters without a gradient on any rank are not updated.
absl::Status GradientStep::LeaveOutUnwritten(std::vector<TensorRates>* rates) {
  std::vector<uint32_t> asked;
  std::vector<double> written;
  for (uint32_t t = 0; t < setup_.parameters.size(); ++t) {
    if (setup_.parameters[t].update_without_gradient || !setup_.parameters[t].trainable) continue;
    asked.push_back(t);
    written.push_back(book_->written_in_step(t) ? 1.0 : 0.0);
  }
  if (asked.empty()) return absl::OkStatus();
  GEMINID_RETURN_IF_ERROR(links_->agreement().Worst(&written));
  for (size_t i = 0; i < asked.size(); ++i) (*rates)[asked[i]].skip = written[i] == 0;
  return absl::OkStatus();
}

// The record comes first, then the granules: after a crash in between, the record has the scalars
// for updating the remaining granules. With updates in the backward pass the granules come first;
// granules newer than the record then belong to a step that cannot be finished.
void GradientStep::Commit(const Input& input, const StepResult& result,
                          const std::vector<uint32_t>& order) {
  loss_scaler_.OnStep(result.overflow);
  shm::CommitRecord record = {};
  record.step = result.step;
  record.gradient_norm = result.gradient_norm;
  record.loss_scale = result.loss_scale;
  record.learning_rate = input.learning_rate;
  record.clip_coefficient = result.clip_coefficient;
  std::copy(input.random_state.begin(), input.random_state.end(), record.random_state);
  record.data_position = input.data_position;
  record.updates = position_.updates;
  record.next_loss_scale = loss_scaler_.state().scale;
  record.good_steps = loss_scaler_.state().good_steps;
  record.overflows = loss_scaler_.state().overflows;
  record.overflow = result.overflow ? 1 : 0;
  position_.epoch = shm::WriteRecord(store_->commit(), record);
  store_->SetResumable(true);
  CrashPoint("step recorded");
  begun_.reset();
  setup_.session->SetStep(position_.step);
  if (result.overflow || setup_.updates_in_backward()) return;
  store_->FlipTensorState(position_.epoch);
  CrashPoint("tensors flipped");
  updater_->Start(position_.epoch, order);
}

void GradientStep::End() {
  mover_->ClearGradientSquares();
  book_->BeginStep();
  micro_batches_ = 0;
  norm_.reset();
  gradients_written_ = false;
}

// --- runs ----------------------------------------------------------------------------------------

absl::StatusOr<Progress> GradientStep::GetProgress() const {
  Progress progress;
  progress.step = position_.step;
  progress.updates = position_.updates;
  progress.loss_scaler = loss_scaler_.state();
  progress.tensor_state.resize(optimizer_->tensor_state_bytes());
  if (progress.tensor_state.empty()) return progress;
  GEMINID_RETURN_IF_ERROR(store_->ReadTensorState(progress.tensor_state));
  return progress;
}

absl::StatusOr<std::vector<std::byte>> GradientStep::CheckProgress(const Progress& progress) const {
  GEMINID_ASSIGN_OR_RETURN(std::vector<std::byte> tensor_state,
                           optimizer_->Adopt(progress, setup_.parameters));
  const double scale = progress.loss_scaler.scale;
  if (!std::isfinite(scale) || scale <= 0 || progress.updates > progress.step) {
    return absl::InvalidArgumentError(absl::StrCat("a run cannot stand at step ", progress.step,
                                                   " with ", progress.updates,
                                                   " updates and the loss scale ", scale));
  }
  return tensor_state;
}

absl::Status GradientStep::Restore(const Progress& progress,
                                   const std::vector<std::byte>& tensor_state) {
  store_->SetResumable(false);
  if (!tensor_state.empty()) GEMINID_RETURN_IF_ERROR(store_->WriteTensorState(tensor_state));
  optimizer_->GoOnFrom(tensor_state);
  loss_scaler_.Restore(progress.loss_scaler);
  position_.step = progress.step;
  position_.updates = progress.updates;
  begun_.reset();  // the updates of a step in progress have epochs of their own
  setup_.session->SetStep(position_.step);
  return absl::OkStatus();
}

}  // namespace geminid::zero
