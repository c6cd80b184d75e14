#include "client/zero/engine/gradient_measure.h"

#include "client/zero/engine/engine_impl.h"

namespace geminid::zero {

// Engine::Create makes only EngineImpl.
void MeasureStepGradients(Engine& engine) {
  static_cast<EngineImpl&>(engine).MeasureStepGradients();
}

StepGradients NewestStepGradients(const Engine& engine) {
  return static_cast<const EngineImpl&>(engine).newest_step_gradients();
}

}  // namespace geminid::zero
