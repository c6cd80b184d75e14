// The best plan that today's engine can carry out, of the decisions that it implements.
#ifndef GEMINID_TRAINING_FORECAST_EXECUTABLE_H_
#define GEMINID_TRAINING_FORECAST_EXECUTABLE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/planner/hierarchy/hierarchy.h"

namespace geminid::forecast {

// Where the engine's optimizer state is (zero::StatePlacement, --optimizer-state of geminid-train).
enum class StateMode : std::uint8_t {
  // On the host; whole chunks of it move to the device, those first that the next forward pass
  // needs first, and keep their place on the host.
  kAuto,
  kDevice,  // all on the device from the start, and no place on the host
};
const char* Name(StateMode mode);

struct ExecutablePlan {
  planner::HierarchyPlan plan;
  StateMode mode = StateMode::kAuto;
};

// The faster of the two modes, each by the engine's own rule (client/zero/engine_plan.cc). What can
// be recomputed is, and nothing else leaves the device; no state is streamed, nothing is on disk.
// Not fitting is an answer, of kAuto. Errors are those of the planner. `state_on_host`: there are
// no kernels that update state on the device.
absl::StatusOr<ExecutablePlan> MakeExecutablePlan(const planner::HierarchyProblem& problem,
                                                  bool state_on_host = false);

}  // namespace geminid::forecast

#endif  // GEMINID_TRAINING_FORECAST_EXECUTABLE_H_
