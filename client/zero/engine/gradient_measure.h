// The measure of how much a step's separate gradients differ, for trainers of this project. No part
// of the public interface.
#ifndef GEMINID_CLIENT_ZERO_ENGINE_GRADIENT_MEASURE_H_
#define GEMINID_CLIENT_ZERO_ENGINE_GRADIENT_MEASURE_H_

#include "client/zero/step/step_gradients.h"
#include "geminid/zero.h"

namespace geminid::zero {

// From the next step on the engine measures them, all ranks alike. It reads each gradient once
// more, on the device, before it is reduced. Bits stay the same. Nothing is measured where a step
// has one gradient alone, or micro-batches of several parts (Options::micro_batch_parts).
void MeasureStepGradients(Engine& engine);

// Of the newest step, the same on all ranks. Not of one whose gradients were changed by
// WriteGradient.
StepGradients NewestStepGradients(const Engine& engine);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_ENGINE_GRADIENT_MEASURE_H_
