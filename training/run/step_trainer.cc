#include "training/run/step_trainer.h"

#include "base/clock.h"
#include "base/status_macros.h"
#include "client/src/session_internal.h"
#include "client/zero/engine/gradient_measure.h"

namespace geminid::trainer {

absl::Duration StepTrainer::WaitedForUpdates() const {
  return rank_.session->Stalls()[static_cast<size_t>(StallCause::kUpdate)];
}

// The step's batch. CANCELLED: the run ends and abandons the step; the ranks agree on that before
// any of them computes. A pipeline has several micro-batches at once and completes its step.
absl::StatusOr<MicroBatch> StepTrainer::GetBatch(uint64_t done, uint64_t micro_batch) {
  phases_.BeginMicroBatch(done == first_step_, done, micro_batch,
                          batches_.course().micro_batches());
  const absl::Time waits = base::MonotonicNow();
  absl::StatusOr<MicroBatch> batch = batches_.Get(micro_batch);
  rank_.session->AddStall(StallCause::kData, base::MonotonicNow() - waits);
  if (options_.parallel.pipeline == 1) {
    if (!batch.ok()) end_.NoteNoData(batch.status());
    GEMINID_ASSIGN_OR_RETURN(const bool end, end_.Ask());
    if (end) return absl::CancelledError("the step is abandoned");
  }
  if (!batch.ok()) return batch.status();
  batch->keeps_activations = rank_.activations.keeps();
  batch->stack = rank_.model->stack();
  return batch;
}

// All ranks refuse a step that would write more to disk than one of them may.
absl::StatusOr<std::optional<TrainedStep>> StepTrainer::GiveUp(const absl::Status& refused) {
  GEMINID_RETURN_IF_ERROR(end_.NoteRefusedStep(refused));
  GEMINID_RETURN_IF_ERROR(rank_.model->engine().CancelMicroBatch());
  return std::nullopt;
}

absl::StatusOr<std::optional<TrainedStep>> StepTrainer::Train(uint64_t done) {
  const absl::Time began = base::MonotonicNow();
  TrainedModel& model = *rank_.model;
  const bool follows_noise = batches_.course().follows_noise();
  TrainedStep step = {.learning_rate = batches_.course().learning_rate(),
                      .micro_batches = batches_.course().micro_batches()};
  const uint64_t targets = batches_.targets_of_step();
  if (follows_noise) model.SetMicroBatches(step.micro_batches);
  batches_.watch().BeginStep(WaitedForUpdates());
  const absl::Status begun = model.engine().BeginStep({.learning_rate = step.learning_rate});
  if (!begun.ok()) return GiveUp(begun);
  // The engine takes the mean of the gradients over micro-batches and ranks.
  const float gradient_scale = static_cast<float>(model.engine().loss_scale()) /
                               static_cast<float>(batches_.batches().targets_per_micro_batch());
  const auto get = [&](uint64_t micro_batch) { return GetBatch(done, micro_batch); };
  const absl::StatusOr<double> my_loss = model.TrainMicroBatches(get, gradient_scale);
  if (absl::IsCancelled(my_loss.status()) && end_.has_come()) {
    GEMINID_RETURN_IF_ERROR(model.engine().CancelMicroBatch());
    return std::nullopt;
  }
  GEMINID_RETURN_IF_ERROR(my_loss.status());
  batches_.watch().EndMicroBatches(base::MonotonicNow(), WaitedForUpdates());
  end_.AskForRanks(scaling_.Poll(base::MonotonicNow()));
  GEMINID_ASSIGN_OR_RETURN(const double loss_sum, end_.Add(*my_loss));
  GEMINID_ASSIGN_OR_RETURN(const RunBatches::StepEnd end,
                           batches_.EndStep(model.engine(), *rank_.sums));
  const checkpoint::RunState run = end.course.saved();
  const absl::StatusOr<zero::StepResult> stepped = model.Step({.learning_rate = step.learning_rate,
                                                               .data_position = run.data_position,
                                                               .random_state = run.random_state});
  if (!stepped.ok()) return GiveUp(stepped.status());
  batches_.GoOnAfter(end);
  step.loss = loss_sum / static_cast<double>(targets);
  step.result = *stepped;
  step.change = end.change;
  step.seconds = absl::ToDoubleSeconds(base::MonotonicNow() - began);
  batches_.watch().EndStep(zero::NewestStepGradients(model.engine()), step.seconds);
  phases_.End();
  return step;
}

}  // namespace geminid::trainer
