// Watches the steps of a run for the advice on its batch: their gradients' noise and their times.
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

// Why the noise of such a run is not measured; empty: it is.
std::string WhyNoiseIsUnmeasured(const TrainOptions& options, int ranks);

// How the learning rate follows the batch with this optimizer.
RateRule RuleOf(const zero::Optimizer& optimizer);

// What an update costs on all ranks, in the time of so many sequences, by the steps that each has
// timed. Nothing: some rank has timed none. A collective.
absl::StatusOr<std::optional<double>> CostOfUpdates(const std::optional<StepModel>& times,
                                                    collectives::Communicator& ranks);

// Handed the time, which only grows, in the order of the methods, step by step. A step that is
// given up begins anew. Not thread-safe.
class BatchWatch {
 public:
  // `options`: with the mesh that was chosen.
  BatchWatch(const TrainOptions& options, int ranks);

  // Whether the engine should be asked for step gradients.
  bool measures() const { return facts_.unmeasured.empty(); }

  // `waited`: for updates of earlier steps, by the session's count so far.
  void BeginStep(absl::Duration waited);
  void BeginMicroBatch(absl::Time now);
  void EndMicroBatches(absl::Time now, absl::Duration waited);
  // `step_seconds`: of the step as a whole.
  void EndStep(const zero::StepGradients& gradients, double step_seconds);

  // What the advice is for, from now on; at first it is as the options say.
  void SetMicroBatches(uint64_t count) { facts_.now.micro_batches = count; }

  // By the steps so far; nothing before the second.
  std::optional<StepModel> Times() const { return FitStepModel(times_); }
  BatchAdvice Advice() const;
  shm::BatchNumbers Numbers() const;  // of it, for the daemon's metrics

 private:
  AdviceFacts facts_;
  double sequences_per_gradient_ = 0;
  NoiseMeter noise_;
  // Of the newest steps but the first, which samples and plans; a ring.
  static constexpr size_t kTimes = 256;
  std::vector<StepTimes> times_;
  uint64_t steps_ = 0;
  // Of the step at hand.
  std::vector<absl::Time> began_;  // its micro-batches
  absl::Duration waited_;
  std::optional<double> micro_batch_seconds_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RUN_BATCH_WATCH_H_
