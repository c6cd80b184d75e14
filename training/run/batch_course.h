// Where a run stands in its data: which sequences its next step trains on, in how many
// micro-batches and at which learning rate.
#ifndef GEMINID_TRAINING_RUN_BATCH_COURSE_H_
#define GEMINID_TRAINING_RUN_BATCH_COURSE_H_

#include <cstdint>
#include <optional>

#include "client/zero/step/step_gradients.h"
#include "geminid/checkpoint.h"
#include "training/goodput/follow_noise.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// The same on all ranks, which make the same calls. Without --accumulate auto every step is alike.
// With it a run has as many sequences as --steps smallest steps, and a larger step counts for
// several of them, also in the schedule. Not thread-safe.
class BatchCourse {
 public:
  // `options`: with the number of steps; it outlives this.
  BatchCourse(const TrainOptions& options, int ranks);

  bool follows_noise() const { return options_.follows_noise.has_value(); }

  // Goes on after `step` steps that ended with `saved`. False: those were of another run.
  bool GoOn(uint64_t step, const checkpoint::RunState& saved);

  // What is saved with the steps so far.
  checkpoint::RunState saved() const;
  // All steps of the run, with those that are done: as many as are left if no number of
  // micro-batches changes any more. Equal to what is done when nothing is left.
  uint64_t steps() const;

  // --- the next step ---

  uint64_t first_sample() const { return sequences_done_; }
  uint64_t sequences_left() const;
  // In the last step fewer than usual may be left.
  uint64_t micro_batches() const;
  // The schedule's at the step's last sequence, times the factor of its size.
  double learning_rate() const;

  // --- its end ---

  // Whether EndStep wants what an update costs, which is in this step.
  bool NeedsUpdateCost() const;
  // Before the engine's Step, with the gradients as measured: what saved() returns is committed
  // with that step. A change counts from the next step on. Without --accumulate auto both are
  // ignored.
  std::optional<BatchChange> EndStep(const zero::StepGradients& gradients,
                                     std::optional<double> update_cost);

  const FollowRules& rules() const { return rules_; }
  const FollowState& state() const { return state_; }

 private:
  const TrainOptions& options_;
  const double sequences_per_gradient_;
  const FollowRules rules_;  // without --accumulate auto of as many micro-batches always
  FollowState state_;
  uint64_t steps_done_ = 0;
  uint64_t sequences_done_ = 0;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RUN_BATCH_COURSE_H_
