// What became of a step of the optimizer.
#ifndef GEMINID_STEP_RESULT_H_
#define GEMINID_STEP_RESULT_H_

#include <cstdint>

namespace geminid::zero {

struct StepResult {
  uint64_t step = 0;            // steps committed, this one included
  double gradient_norm = 0;     // over all parameters of all ranks, unscaled, before clipping
  double clip_coefficient = 1;  // what the unscaled gradients were multiplied by
  double loss_scale = 1;        // what the gradients had been multiplied by
  bool overflow = false;        // a gradient was not finite: the weights are unchanged
  // Another job has the device, and Admission::on_wait of some rank ended the wait for it. The step
  // is committed, and all state is on the host: save it, export it, read values, and end. What
  // needs the device fails from now on with that rank's reason, on all ranks.
  bool wait_ended = false;
};

}  // namespace geminid::zero

#endif  // GEMINID_STEP_RESULT_H_
