// Trains the steps of one rank.
#ifndef GEMINID_TRAINING_RUN_STEP_TRAINER_H_
#define GEMINID_TRAINING_RUN_STEP_TRAINER_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "geminid/zero.h"
#include "training/goodput/follow_noise.h"
#include "training/ranks/run_end.h"
#include "training/run/run_batches.h"
#include "training/run/run_phases.h"
#include "training/run/run_rank.h"
#include "training/scaling/scaling.h"
#include "training/settings/options.h"

namespace geminid::trainer {

struct TrainedStep {
  double loss = 0;  // the mean over the step's tokens
  double learning_rate = 0;
  uint64_t micro_batches = 0;
  double seconds = 0;
  zero::StepResult result{};
  std::optional<BatchChange> change{};  // for the next steps
};

// All ranks make the same calls.
class StepTrainer {
 public:
  // All outlive this object. `first_step`: the number of steps of earlier starts.
  StepTrainer(const TrainOptions& options, uint64_t first_step, RunRank* rank, RunBatches* batches,
              RunEnd* end, Scaling* scaling, RunPhases* phases)
      : options_(options),
        first_step_(first_step),
        rank_(*rank),
        batches_(*batches),
        end_(*end),
        scaling_(*scaling),
        phases_(*phases) {}

  // The step after the first `done` ones. Nothing: the step was abandoned; `end` has the reason.
  absl::StatusOr<std::optional<TrainedStep>> Train(uint64_t done);

 private:
  absl::StatusOr<MicroBatch> GetBatch(uint64_t done, uint64_t micro_batch);
  absl::StatusOr<std::optional<TrainedStep>> GiveUp(const absl::Status& refused);
  absl::Duration WaitedForUpdates() const;

  const TrainOptions& options_;
  const uint64_t first_step_;
  RunRank& rank_;
  RunBatches& batches_;
  RunEnd& end_;
  Scaling& scaling_;
  RunPhases& phases_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RUN_STEP_TRAINER_H_
