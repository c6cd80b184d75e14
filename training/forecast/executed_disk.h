// A run of geminid-train with --state-disk: how much of the optimizer's state the engine has on
// disk, by its own rule and its own list of chunks, and what that does to a step.
#ifndef GEMINID_TRAINING_FORECAST_EXECUTED_DISK_H_
#define GEMINID_TRAINING_FORECAST_EXECUTED_DISK_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "client/zero/state/disk_choice.h"
#include "daemon/planner/hierarchy/hierarchy.h"
#include "training/forecast/executable.h"
#include "training/forecast/model.h"
#include "training/forecast/problem.h"

namespace geminid::forecast {

// Of one rank.
struct ExecutedState {
  zero::DiskChoice choice;
  planner::TierBytes host;          // what the daemon's ledger charges to it; no limit
  std::uint64_t payload_bytes = 0;  // of state on disk
  std::uint64_t file_bytes = 0;     // of its file
  std::uint64_t step_bytes = 0;     // that a step reads; it writes as many
};

// The engine may have state on disk.
inline bool HasStateDisk(const Job& job) { return job.only_executable && job.disk_bytes > 0; }

// With `host_bytes` for this rank. INVALID_ARGUMENT for optimizers that cannot have state on disk.
absl::StatusOr<ExecutedState> ExecutedStateOf(const Model& model, const Job& job,
                                              std::uint64_t host_bytes);

// As MakeExecutablePlan, with the state on disk that host memory does not hold.
absl::StatusOr<ExecutablePlan> MakePlanWithDisk(const Model& model,
                                                planner::HierarchyProblem problem, const Job& job);

}  // namespace geminid::forecast

#endif  // GEMINID_TRAINING_FORECAST_EXECUTED_DISK_H_
