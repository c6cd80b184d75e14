#include "training/run/run_batches.h"

#include "base/clock.h"
#include "base/status_macros.h"
#include "client/zero/engine/gradient_measure.h"

namespace geminid::trainer {

RunBatches::RunBatches(const TrainOptions& options, int ranks, Batches batches)
    : options_(options), batches_(std::move(batches)), watch_(options, ranks) {
  course_.emplace(options, ranks);
}

bool RunBatches::GoOn(uint64_t step, const checkpoint::RunState& saved) {
  if (!course_->GoOn(step, saved)) return false;
  if (course_->follows_noise()) {
    watch_.SetMicroBatches(MicroBatchesOf(course_->rules(), course_->state()));
  }
  return true;
}

uint64_t RunBatches::tokens_of_step() const {
  return course_->micro_batches() * options_.batch * options_.model.context;
}

uint64_t RunBatches::targets_of_step() const {
  return course_->micro_batches() * options_.batch * batches_.targets_per_sequence();
}

absl::StatusOr<MicroBatch> RunBatches::Get(uint64_t micro_batch) {
  watch_.BeginMicroBatch(base::MonotonicNow());
  GEMINID_ASSIGN_OR_RETURN(
      MicroBatch batch, batches_.GetFrom(course_->first_sample() + micro_batch * options_.batch));
  batch.dropout.share = options_.dropout;
  batch.dropout.seed = options_.seed;
  return batch;
}

RunBatches::StepEnd RunBatches::EndWith(const zero::StepGradients& gradients,
                                        std::optional<double> update_cost) const {
  StepEnd end = {.course = *course_, .change = std::nullopt};
  end.change = end.course.EndStep(gradients, update_cost);
  return end;
}

absl::StatusOr<RunBatches::StepEnd> RunBatches::EndStep(zero::Engine& engine,
                                                        collectives::Communicator& ranks) const {
  zero::StepGradients gradients;
  std::optional<double> cost;
  if (course_->follows_noise()) {
    GEMINID_RETURN_IF_ERROR(engine.GradientNorm().status());
    gradients = zero::NewestStepGradients(engine);
  }
  if (course_->NeedsUpdateCost()) {
    GEMINID_ASSIGN_OR_RETURN(cost, CostOfUpdates(watch_.Times(), ranks));
  }
  return EndWith(gradients, cost);
}

void RunBatches::GoOnAfter(const StepEnd& end) {
  course_.emplace(end.course);
  if (end.change) watch_.SetMicroBatches(end.change->to);
}

}  // namespace geminid::trainer
