// Steps: micro-batches, the step's input, and its result.
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "client/c_api/arguments.h"
#include "client/c_api/engine_calls.h"
#include "client/c_api/objects.h"
#include "geminid/c_api.h"
#include "geminid/zero.h"

namespace geminid::c_api {
namespace {

absl::StatusOr<zero::Engine::StepInput> ToInput(const geminid_step_input* given) {
  GEMINID_ASSIGN_OR_RETURN(
      const geminid_step_input read,
      Read(given, "input",
           {offsetof(geminid_step_input, gradient_scale), &geminid_step_input_init}));
  zero::Engine::StepInput input;
  input.learning_rate = read.learning_rate;
  input.clip_norm = UnlessNan(read.clip_norm);
  input.gradient_norm = UnlessNan(read.gradient_norm);
  input.gradient_scale = read.gradient_scale;
  input.data_position = read.data_position;
  std::copy(std::begin(read.random_state), std::end(read.random_state), input.random_state.begin());
  if (read.group_count > 0) GEMINID_RETURN_IF_ERROR(CheckGiven(read.groups, "groups"));
  for (size_t i = 0; i < read.group_count; ++i) {
    GEMINID_ASSIGN_OR_RETURN(const geminid_group group,
                             ReadElement(read.groups, i, "group",
                                         {offsetof(geminid_group, beta1), &geminid_group_init}));
    input.groups.push_back({.learning_rate = group.learning_rate,
                            .weight_decay = UnlessNan(group.weight_decay),
                            .beta1 = UnlessNan(group.beta1),
                            .beta2 = UnlessNan(group.beta2),
                            .epsilon = UnlessNan(group.epsilon)});
  }
  return input;
}

}  // namespace
}  // namespace geminid::c_api

using namespace geminid::c_api;  // below is the interface, outside of any namespace

geminid_code geminid_engine_begin_micro_batch(geminid_engine* engine, geminid_error* error) {
  return OnEngine(engine, error,
                  [](EngineObject& object) { return object.engine().BeginMicroBatch(); });
}

geminid_code geminid_engine_cancel_micro_batch(geminid_engine* engine, geminid_error* error) {
  return OnEngine(engine, error,
                  [](EngineObject& object) { return object.engine().CancelMicroBatch(); });
}

void geminid_group_init(geminid_group* group, size_t struct_size) {
  geminid_group filled = {};
  filled.weight_decay = filled.beta1 = filled.beta2 = filled.epsilon = NAN;
  Init(group, struct_size, filled);
}

void geminid_step_input_init(geminid_step_input* input, size_t struct_size) {
  geminid_step_input filled = {};
  filled.clip_norm = NAN;
  filled.gradient_norm = NAN;
  filled.gradient_scale = 1;
  Init(input, struct_size, filled);
}

void geminid_step_result_init(geminid_step_result* result, size_t struct_size) {
  Init(result, struct_size, geminid_step_result{});
}

geminid_code geminid_engine_begin_step(geminid_engine* engine, const geminid_step_input* input,
                                       geminid_error* error) {
  return OnEngine(engine, error, [&](EngineObject& object) -> absl::Status {
    GEMINID_ASSIGN_OR_RETURN(const auto given, ToInput(input));
    return object.engine().BeginStep(given);
  });
}

geminid_code geminid_engine_step(geminid_engine* engine, const geminid_step_input* input,
                                 geminid_step_result* result, geminid_error* error) {
  return OnEngine(engine, error, [&](EngineObject& object) -> absl::Status {
    GEMINID_RETURN_IF_ERROR(CheckResult(result, "result"));
    GEMINID_ASSIGN_OR_RETURN(const auto given, ToInput(input));
    GEMINID_ASSIGN_OR_RETURN(const auto made, object.engine().Step(given));
    Write(result, {0, made.step, made.gradient_norm, made.clip_coefficient, made.loss_scale,
                   made.overflow ? 1 : 0, made.wait_ended ? 1 : 0});
    return absl::OkStatus();
  });
}

geminid_code geminid_engine_synchronize(geminid_engine* engine, geminid_error* error) {
  return OnEngine(engine, error,
                  [](EngineObject& object) { return object.engine().Synchronize(); });
}
