// The plan that the engine carries out: only the engine's own decisions vary.
#ifndef GEMINID_TRAINING_FORECAST_EXECUTABLE_H_
#define GEMINID_TRAINING_FORECAST_EXECUTABLE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/planner/tiers/tier_plan.h"

namespace geminid::forecast {

// Where the engine's optimizer state is (zero::StatePlacement; --optimizer-state of geminid-train).
enum class StateMode : std::uint8_t {
  // On the host; whole chunks of state move to the device, in the order in which the next forward
  // pass needs them, and still occupy their host memory.
  kAuto,
  kDevice,  // all on the device from the start, with no host memory
};
const char* Name(StateMode mode);

struct ExecutablePlan {
  planner::TierPlan plan;
  StateMode mode = StateMode::kAuto;
};

// The faster of the two modes, each by the engine's own rule (client/zero/engine_plan.cc). All
// activations that can be are recomputed; if the problem has places for activations, those that can
// be are offloaded. No state is streamed or on disk. A plan that does not fit is an answer too, in
// mode kAuto. Errors are the planner's.
// `state_on_host`: the state must stay on the host, because no kernels update it on the device.
absl::StatusOr<ExecutablePlan> MakeExecutablePlan(const planner::TierProblem& problem,
                                                  bool state_on_host = false);

}  // namespace geminid::forecast

#endif  // GEMINID_TRAINING_FORECAST_EXECUTABLE_H_
