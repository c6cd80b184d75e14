// Measures the steps of a run for the advice on its batch: gradient noise and times.
#ifndef GEMINID_TRAINING_RUN_BATCH_WATCH_H_
#define GEMINID_TRAINING_RUN_BATCH_WATCH_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/zero/step/step_gradients.h"
#include "geminid/communicator.h"
#include "proto/shm/batch_numbers.h"
#include "training/goodput/advice.h"
#include "training/goodput/noise_scale.h"
#include "training/goodput/step_model.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// The reason why such a run does not measure its gradient noise; empty: it measures it.
std::string WhyNoiseIsUnmeasured(const TrainOptions& options, int ranks);

// How the learning rate follows the batch with this optimizer.
RateRule RuleOf(const zero::Optimizer& optimizer);

// The cost of an update over all ranks, as the number of sequences that take the same time. Each
// rank uses the steps that it has timed. Nothing: some rank has timed none. A collective.
absl::StatusOr<std::optional<double>> CostOfUpdates(const std::optional<StepModel>& times,
                                                    collectives::Communicator& ranks);

// The caller passes the time, which only grows, and calls the methods in their order for each step.
// An abandoned step starts again with BeginStep. Not thread-safe.
class BatchWatch {
 public:
  // `options` have the chosen mesh.
  BatchWatch(const TrainOptions& options, int ranks);

  // Whether the engine should be asked for step gradients.
  bool measures() const { return facts_.unmeasured.empty(); }

  // `waited`: the session's total so far of waits for updates of earlier steps.
  void BeginStep(absl::Duration waited);
  void BeginMicroBatch(absl::Time now);
  void EndMicroBatches(absl::Time now, absl::Duration waited);
  // `step_seconds`: the time of the whole step.
  void EndStep(const zero::StepGradients& gradients, double step_seconds);

  // From now on the advice assumes this number of micro-batches; before, that of the options.
  void SetMicroBatches(uint64_t count) { facts_.now.micro_batches = count; }

  // A fit to the steps so far; nothing before the second step.
  std::optional<StepModel> Times() const { return FitStepModel(times_); }
  BatchAdvice Advice() const;
  shm::BatchNumbers Numbers() const;  // the advice as the daemon's metrics show it

 private:
  AdviceFacts facts_;
  double sequences_per_gradient_ = 0;
  NoiseMeter noise_;
  // A ring of the newest steps' times. The first step, which samples and plans, is left out.
  static constexpr size_t kTimes = 256;
  std::vector<StepTimes> times_;
  uint64_t steps_ = 0;
  // Of the current step.
  std::vector<absl::Time> began_;  // its micro-batches
  absl::Duration waited_;
  std::optional<double> micro_batch_seconds_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RUN_BATCH_WATCH_H_
