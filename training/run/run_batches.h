// The batches of a run's steps on one rank: what each micro-batch trains on, and what the steps say
// of the batch of those to come.
#ifndef GEMINID_TRAINING_RUN_RUN_BATCHES_H_
#define GEMINID_TRAINING_RUN_RUN_BATCHES_H_

#include <cstdint>
#include <optional>
#include <utility>

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
  // `options`: with the mesh that was chosen; it outlives this.
  RunBatches(const TrainOptions& options, int ranks, Batches batches);

  const BatchCourse& course() const { return *course_; }
  BatchWatch& watch() { return watch_; }
  const Batches& batches() const { return batches_; }

  // BatchCourse::GoOn.
  bool GoOn(uint64_t step, const checkpoint::RunState& saved);

  uint64_t tokens_of_step() const;  // the next one, of all ranks
  // This rank's part of a micro-batch of the next step. Valid until the next call.
  absl::StatusOr<MicroBatch> Get(uint64_t micro_batch);

  // Where the run stands after a step, which the engine commits with it.
  struct StepEnd {
    BatchCourse course;
    std::optional<BatchChange> change;
  };
  // With what BatchCourse::EndStep wants.
  StepEnd EndWith(const zero::StepGradients& gradients, std::optional<double> update_cost) const;
  // With what `engine` measured, before its update, which a rank may not survive. A collective.
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
