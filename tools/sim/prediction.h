// The combined result of several simulated runs.
#ifndef GEMINID_TOOLS_SIM_PREDICTION_H_
#define GEMINID_TOOLS_SIM_PREDICTION_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/sim/simulation.h"

namespace geminid::sim {

// A prediction, per step and rank where not said otherwise: the mean over steps, ranks and seeds.
struct Prediction {
  std::string policy;
  uint64_t seeds = 0;
  double step_mean_seconds = 0;  // over the steps of all seeds
  double step_p50_seconds = 0;
  double step_p99_seconds = 0;
  double first_step_seconds = 0;
  double compute_seconds = 0;
  std::array<double, kWaitCauses> wait_seconds{};
  std::array<double, kTracks> busy_seconds{};  // of each track
  double up_bytes = 0;
  double down_bytes = 0;
  double disk_read_bytes = 0;
  double disk_write_bytes = 0;
  uint64_t arena_bytes = 0;
  DeviceBytes device_peak{};               // of the rank that needs most, when it does
  uint64_t host_peak_bytes = 0;            // of the node that needs most, from its daemon's ledger
  std::vector<RecoveryResult> recoveries;  // of the first seed
  // The run of the first seed, for its timeline and its memory.
  SimulationResult first;
};

// Simulates seeds options.seed .. options.seed + seeds - 1. Errors are those of Simulate.
absl::StatusOr<Prediction> Predict(const Machine& machine, const Workload& workload,
                                   const Schedule& schedule, const SimulationOptions& options,
                                   uint64_t seeds);

// ToText is for people, ToJson for programs.
std::string ToText(const Prediction& prediction);
std::string ToJson(const Prediction& prediction);

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_PREDICTION_H_
