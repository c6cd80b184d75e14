// Estimates how long a run still takes.
#ifndef GEMINID_TRAINING_LOGS_REMAINING_H_
#define GEMINID_TRAINING_LOGS_REMAINING_H_

#include <cstdint>

namespace geminid::trainer {

struct Pace {
  uint64_t done = 0;  // steps, with the validations and saves that followed them
  uint64_t steps = 0;
  double step_seconds = 0;
  uint64_t validation_every = 0;  // in steps; 0: there are none
  double validation_seconds = 0;  // of one
  bool saves = false;             // after the last step, and every `save_every` steps
  uint64_t save_every = 0;
  double save_seconds = 0;       // that training waits for a save
  double last_save_seconds = 0;  // a whole save: the run ends with the last one
};

// The steps that are left, with their validations and saves.
double RemainingSeconds(const Pace& pace);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LOGS_REMAINING_H_
