// The position of a run in its data: which sequences its next step trains on, in how many
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

// All ranks make the same calls and get the same answers. Without --accumulate auto all steps have
// the same size. With it the run has the sequences of --steps smallest steps; a larger step counts
// as several of them, also in the learning-rate schedule. Not thread-safe.
class BatchCourse {
 public:
  // `options` have the number of steps, and outlive this object.
  BatchCourse(const TrainOptions& options, int ranks);

  bool follows_noise() const { return options_.follows_noise.has_value(); }

  // Continues after `step` steps that ended with `saved`. False: another run made those steps.
  bool GoOn(uint64_t step, const checkpoint::RunState& saved);

  // The state to save with the steps so far.
  checkpoint::RunState saved() const;
  // The steps of the whole run, finished ones included, if the number of micro-batches stays as it
  // is now. Equal to the number of finished steps when no step is left.
  uint64_t steps() const;

  // --- the next step ---

  uint64_t first_sample() const { return sequences_done_; }
  uint64_t sequences_left() const;
  // The last step may have fewer than the others.
  uint64_t micro_batches() const;
  // The schedule's learning rate at the step's last sequence, times the factor for the step's size.
  double learning_rate() const;

  // --- its end ---

  // Whether EndStep needs the cost of an update. True for the step in which it is measured.
  bool NeedsUpdateCost() const;
  // Call it before the engine's Step, with the measured gradients: the engine commits saved() with
  // that step. A change applies from the next step on. Without --accumulate auto both arguments are
  // ignored.
  std::optional<BatchChange> EndStep(const zero::StepGradients& gradients,
                                     std::optional<double> update_cost);

  const FollowRules& rules() const { return rules_; }
  const FollowState& state() const { return state_; }

 private:
  const TrainOptions& options_;
  const double sequences_per_gradient_;
  const FollowRules rules_;  // without --accumulate auto: least and most are equal
  FollowState state_;
  uint64_t steps_done_ = 0;
  uint64_t sequences_done_ = 0;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RUN_BATCH_COURSE_H_
