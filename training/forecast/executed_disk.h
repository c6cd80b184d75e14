// A run of geminid-train: its bytes of host memory, by the engine's own list of chunks. With
// --state-disk also how much optimizer state the engine puts on disk, by its own rule, and how that
// changes a step.
#ifndef GEMINID_TRAINING_FORECAST_EXECUTED_DISK_H_
#define GEMINID_TRAINING_FORECAST_EXECUTED_DISK_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "client/zero/state/disk_choice.h"
#include "daemon/planner/tiers/tier_plan.h"
#include "training/forecast/executable.h"
#include "training/forecast/model.h"
#include "training/forecast/problem.h"

namespace geminid::forecast {

// The optimizer state of one rank.
struct ExecutedState {
  zero::DiskChoice choice;
  planner::TierBytes host;          // charged to this rank in the daemon's ledger; no limit
  planner::TierBytes besides;       // the part of `host` that is there wherever the state lies
  std::uint64_t host_bytes = 0;     // as host.peak, with the pools' padding
  std::uint64_t payload_bytes = 0;  // of state on disk
  std::uint64_t file_bytes = 0;     // of the state's file
  std::uint64_t step_bytes = 0;     // read by the updates of a step, which write as many
  std::uint64_t sums_bytes = 0;     // read before the updates, for sums over tensors
};

// Whether the engine may put state on disk.
inline bool HasStateDisk(const Job& job) { return job.disk_bytes > 0; }

// For a rank with `host_bytes`. Without a disk all state is in host memory.
absl::StatusOr<ExecutedState> ExecutedStateOf(const Model& model, const Job& job,
                                              std::uint64_t host_bytes);

// The host memory that the ranks of a node share, charged to the first of them. 0 for one rank.
std::uint64_t SharedBytes(const Job& job);

// The planner's host bytes with all state in host memory, less those of the engine's list: the
// planner's chunks are whole extents, and its spare is a chunk.
std::int64_t HostExcess(const planner::TierProblem& problem, const ExecutedState& state);
// The planner's host bytes that mean the same as the engine's `host_bytes`.
std::uint64_t PlannersHostBytes(std::uint64_t host_bytes, std::int64_t excess);
// Replaces the plan's host memory by that of the engine's list, except for the activations. With all
// state on the device the rest must fit too.
void SetHost(const ExecutedState& state, StateMode mode, std::uint64_t limit,
             planner::TierPlan* plan);

// As MakeExecutablePlan, with state on disk as far as host memory does not hold it.
absl::StatusOr<ExecutablePlan> MakePlanWithDisk(const Model& model, planner::TierProblem problem,
                                                const Job& job);

}  // namespace geminid::forecast

#endif  // GEMINID_TRAINING_FORECAST_EXECUTED_DISK_H_
