// The result of a step of the optimizer.
#ifndef GEMINID_STEP_RESULT_H_
#define GEMINID_STEP_RESULT_H_

#include <cstdint>

namespace geminid::zero {

struct StepResult {
  uint64_t step = 0;            // steps committed, including this one
  double gradient_norm = 0;     // over all parameters of all ranks, unscaled, before clipping
  double clip_coefficient = 1;  // the factor of the unscaled gradients
  double loss_scale = 1;        // the factor that the gradients contained
  bool overflow = false;        // a gradient was not finite: the weights are unchanged
  // Another job has the device, and Admission::on_wait ended the wait for it on some rank. The step
  // is committed, and all state is on the host: save it, export it, read values, and end. Calls
  // that need the device now fail on all ranks, with that rank's reason.
  bool wait_ended = false;
};

}  // namespace geminid::zero

#endif  // GEMINID_STEP_RESULT_H_
