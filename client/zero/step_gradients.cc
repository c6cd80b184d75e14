#include "client/zero/step_gradients.h"

#include "client/zero/engine_impl.h"

namespace geminid::zero {

// Engine::Create makes no others.
void MeasureStepGradients(Engine& engine) {
  static_cast<EngineImpl&>(engine).MeasureStepGradients();
}

StepGradients NewestStepGradients(const Engine& engine) {
  return static_cast<const EngineImpl&>(engine).newest_step_gradients();
}

}  // namespace geminid::zero
