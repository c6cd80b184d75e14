#include "training/run/batch_watch.h"

#include <algorithm>
#include <variant>

#include "base/status_macros.h"

namespace geminid::trainer {

// Momentum or not, SGD's update is proportional to the gradient. All others divide by its size.
RateRule RuleOf(const zero::Optimizer& optimizer) {
  return std::holds_alternative<zero::SgdOptions>(optimizer) ? RateRule::kAdaScale
                                                             : RateRule::kSquareRoot;
}

std::string WhyNoiseIsUnmeasured(const TrainOptions& options, int ranks) {
  if (options.parallel.cuts()) {
    return "gradient noise is measured where each rank has whole sequences and the whole model: "
           "without --parallel, or with data=N alone";
  }
  if (static_cast<uint64_t>(ranks) * SequencesPerStep(options) / options.batch < 2) {
    return "one rank with one micro-batch a step has one gradient, and noise is the difference of "
           "several: give --accumulate 2 (with half the --batch) or --ranks 2";
  }
  return "";
}

absl::StatusOr<std::optional<double>> CostOfUpdates(const std::optional<StepModel>& times,
                                                    collectives::Communicator& ranks) {
  const StepModel mine = times.value_or(StepModel{});
  const bool is_timed = mine.seconds_per_sequence > 0;
  std::vector<double> sums = {is_timed ? 1.0 : 0.0, mine.update_seconds, mine.seconds_per_sequence};
  GEMINID_RETURN_IF_ERROR(ranks.AllReduce(sums, sums, collectives::ReduceOp::kSum));
  if (sums[0] < ranks.WorldSize()) return std::optional<double>();
  return std::optional<double>(sums[1] / sums[2]);
}

BatchWatch::BatchWatch(const TrainOptions& options, int ranks)
    : facts_{.unmeasured = WhyNoiseIsUnmeasured(options, ranks),
             .now = {options.batch, SequencesPerStep(options) / options.batch},
             .ranks = static_cast<uint64_t>(ranks),
             .rule = RuleOf(options.zero.optimizer)},
      sequences_per_gradient_(static_cast<double>(options.batch) / ranks) {}

void BatchWatch::BeginStep(absl::Duration waited) {
  began_.clear();
  waited_ = waited;
  micro_batch_seconds_.reset();
}

void BatchWatch::BeginMicroBatch(absl::Time now) {
  if (measures()) began_.push_back(now);
}

// The first micro-batch waits for the update before it, which each step has once. With several, the
// others alone are counted. With one, what it waited is taken off.
void BatchWatch::EndMicroBatches(absl::Time now, absl::Duration waited) {
  if (began_.empty()) return;
  if (began_.size() > 1) {
    const double others = static_cast<double>(began_.size() - 1);
    micro_batch_seconds_ = absl::ToDoubleSeconds(now - began_[1]) / others;
  } else {
    const absl::Duration worked = now - began_[0] - (waited - waited_);
    micro_batch_seconds_ = absl::ToDoubleSeconds(std::max(worked, absl::ZeroDuration()));
  }
}

void BatchWatch::EndStep(const zero::StepGradients& gradients, double step_seconds) {
  noise_.Add({.gradients = gradients.count,
              .sequences = sequences_per_gradient_,
              .mean_square = gradients.mean_square,
              .square_of_mean = gradients.square_of_mean});
  ++steps_;
  if (steps_ == 1 || !micro_batch_seconds_) return;
  const StepTimes times = {.sequences = static_cast<double>(facts_.now.sequences),
                           .micro_batches = static_cast<double>(began_.size()),
                           .micro_batch_seconds = *micro_batch_seconds_,
                           .step_seconds = step_seconds};
  if (times_.size() < kTimes) {
    times_.push_back(times);
  } else {
    times_[steps_ % kTimes] = times;
  }
}

BatchAdvice BatchWatch::Advice() const { return Advise(facts_, noise_, Times()); }

shm::BatchNumbers BatchWatch::Numbers() const {
  const BatchAdvice advice = Advice();
  const bool is_known = advice.unknown.empty();
  return {.per_step = static_cast<double>(advice.now.total()),
          .noise_scale = advice.noise ? advice.noise->sequences : 0.0,
          .advised_per_step = is_known ? static_cast<double>(advice.best.shape.total()) : 0.0};
}

}  // namespace geminid::trainer
