// A run of geminid-train with --state-disk: how much optimizer state the engine puts on disk, by
// its own rule and its own list of chunks, and how that changes a step.
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

// The optimizer state of one rank.
struct ExecutedState {
  zero::DiskChoice choice;
  planner::TierBytes host;          // charged to this rank in the daemon's ledger; no limit
  std::uint64_t payload_bytes = 0;  // of state on disk
  std::uint64_t file_bytes = 0;     // of the state's file
  std::uint64_t step_bytes = 0;     // read by a step, which writes as many
};

// Whether the engine may put state on disk.
inline bool HasStateDisk(const Job& job) { return job.only_executable && job.disk_bytes > 0; }

// For a rank with `host_bytes`. INVALID_ARGUMENT for optimizers that cannot have state on disk.
absl::StatusOr<ExecutedState> ExecutedStateOf(const Model& model, const Job& job,
                                              std::uint64_t host_bytes);

// As MakeExecutablePlan, with state on disk as far as host memory does not hold it.
absl::StatusOr<ExecutablePlan> MakePlanWithDisk(const Model& model,
                                                planner::HierarchyProblem problem, const Job& job);

}  // namespace geminid::forecast

#endif  // GEMINID_TRAINING_FORECAST_EXECUTED_DISK_H_
