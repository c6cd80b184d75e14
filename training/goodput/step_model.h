// Predicts the time of a step with another batch from the steps that were timed. Pure.
#ifndef GEMINID_TRAINING_GOODPUT_STEP_MODEL_H_
#define GEMINID_TRAINING_GOODPUT_STEP_MODEL_H_

#include <optional>
#include <span>

namespace geminid::trainer {

// The measured times of one step.
struct StepTimes {
  double sequences = 0;            // of a micro-batch, over all ranks
  double micro_batches = 0;        // of the step
  double micro_batch_seconds = 0;  // of one, without work that a step has once
  double step_seconds = 0;
};

// step = micro_batches * (fixed + per_sequence * sequences) + update. Communication is included as
// it was measured: the model assumes that it overlaps computation as it did then.
struct StepModel {
  double fixed_seconds = 0;  // of each micro-batch
  double seconds_per_sequence = 0;
  double update_seconds = 0;  // of each step
  // At least two sizes of micro-batch were timed. If not, fixed_seconds is 0: the model assumes
  // that the time of a micro-batch is proportional to its sequences.
  bool fixed_known = false;

  double MicroBatchSeconds(double sequences) const {
    return fixed_seconds + seconds_per_sequence * sequences;
  }
  double StepSeconds(double sequences, double micro_batches) const {
    return micro_batches * MicroBatchSeconds(sequences) + update_seconds;
  }
};

// Fits the median times of each size of micro-batch and of step, by least squares of the relative
// errors. No part is below 0. Nothing: there are no times above 0.
std::optional<StepModel> FitStepModel(std::span<const StepTimes> times);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_GOODPUT_STEP_MODEL_H_
