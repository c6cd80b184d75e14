// The batches of one rank's steps: the sequences of each micro-batch, and the measurements that
// decide the batch of later steps.
#ifndef GEMINID_TRAINING_RUN_RUN_BATCHES_H_
#define GEMINID_TRAINING_RUN_RUN_BATCHES_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "client/zero/step/step_gradients.h"
#include "geminid/checkpoint.h"
#include "geminid/communicator.h"
#include "geminid/zero.h"
#include "training/data/batches.h"
#include "training/run/batch_course.h"
#include "training/run/batch_watch.h"
#include "training/settings/options.h"

namespace geminid::trainer {

class RunBatches {
 public:
  // `options` have the chosen mesh, and outlive this object.
  RunBatches(const TrainOptions& options, int ranks, Batches batches);

  const BatchCourse& course() const { return *course_; }
  BatchWatch& watch() { return watch_; }
  const Batches& batches() const { return batches_; }

  // As BatchCourse::GoOn.
  bool GoOn(uint64_t step, const checkpoint::RunState& saved);

  uint64_t tokens_of_step() const;   // the next one, over all ranks
  uint64_t targets_of_step() const;  // of these, the tokens that have a target
  // This rank's sequences of a micro-batch of the next step. Valid until the next call.
  absl::StatusOr<MicroBatch> Get(uint64_t micro_batch);

  // The position of the run after a step. The engine commits it with that step.
  struct StepEnd {
    BatchCourse course;
    std::optional<BatchChange> change;
  };
  // The arguments are those of BatchCourse::EndStep.
  StepEnd EndWith(const zero::StepGradients& gradients, std::optional<double> update_cost) const;
  // Takes the measurements of `engine`. Call it before the engine's update, because a rank may die
  // in that. A collective.
  absl::StatusOr<StepEnd> EndStep(zero::Engine& engine, collectives::Communicator& ranks) const;
  // The step is committed.
  void GoOnAfter(const StepEnd& end);

 private:
  const TrainOptions& options_;
  Batches batches_;
  std::optional<BatchCourse> course_;
  BatchWatch watch_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RUN_RUN_BATCHES_H_
