// Estimates the remaining time of a run.
#ifndef GEMINID_TRAINING_LOGS_REMAINING_H_
#define GEMINID_TRAINING_LOGS_REMAINING_H_

#include <cstdint>

namespace geminid::trainer {

struct Pace {
  uint64_t done = 0;  // steps whose validations and saves are done too
  uint64_t steps = 0;
  double step_seconds = 0;
  uint64_t validation_every = 0;  // in steps; 0: no validation
  double validation_seconds = 0;  // of one validation
  bool saves = false;             // after the last step, and every `save_every` steps
  uint64_t save_every = 0;
  double save_seconds = 0;       // that training waits for a save
  double last_save_seconds = 0;  // a whole save: the run ends with the last one
};

// The time of the remaining steps, validations and saves.
double RemainingSeconds(const Pace& pace);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LOGS_REMAINING_H_
