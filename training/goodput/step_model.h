// How long a step takes with another batch, by the steps that were timed. Pure.
#ifndef GEMINID_TRAINING_GOODPUT_STEP_MODEL_H_
#define GEMINID_TRAINING_GOODPUT_STEP_MODEL_H_

#include <optional>
#include <span>

namespace geminid::trainer {

// One step as it was timed.
struct StepTimes {
  double sequences = 0;            // of a micro-batch, over all ranks
  double micro_batches = 0;        // of the step
  double micro_batch_seconds = 0;  // of one, without what only one a step has
  double step_seconds = 0;
};

// step = micro_batches * (fixed + per_sequence * sequences) + update. Communication is in both
// parts as it was measured: what overlapped computing then is taken to overlap it again.
struct StepModel {
  double fixed_seconds = 0;  // of each micro-batch
  double seconds_per_sequence = 0;
  double update_seconds = 0;  // of each step
  // Timed with two sizes of micro-batch or more. If not, fixed_seconds is 0: the time of a
  // micro-batch is taken to be proportional to its sequences.
  bool fixed_known = false;

  double MicroBatchSeconds(double sequences) const {
    return fixed_seconds + seconds_per_sequence * sequences;
  }
  double StepSeconds(double sequences, double micro_batches) const {
    return micro_batches * MicroBatchSeconds(sequences) + update_seconds;
  }
};

// By least squares of the relative errors, of the median times of each size of micro-batch and of
// step. No part is below 0. Nothing: no times, or none above 0.
std::optional<StepModel> FitStepModel(std::span<const StepTimes> times);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_GOODPUT_STEP_MODEL_H_
