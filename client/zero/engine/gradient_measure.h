// Measures how much the separate gradients of one step differ. For trainers of this project; not a
// part of the public interface.
#ifndef GEMINID_CLIENT_ZERO_ENGINE_GRADIENT_MEASURE_H_
#define GEMINID_CLIENT_ZERO_ENGINE_GRADIENT_MEASURE_H_

#include "client/zero/step/step_gradients.h"
#include "geminid/zero.h"

namespace geminid::zero {

// The engine measures from the next step on. All ranks call this alike. It reads each gradient once
// more, on the device, before it is reduced. Results stay bit-identical. Steps with only one
// gradient, or with micro-batches of several parts (Options::micro_batch_parts), are not measured.
void MeasureStepGradients(Engine& engine);

// The measurement of the newest step, the same on all ranks. A step whose gradients were changed by
// WriteGradient has no measurement.
StepGradients NewestStepGradients(const Engine& engine);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_ENGINE_GRADIENT_MEASURE_H_
