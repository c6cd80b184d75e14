// Turns a model and a machine into the planner's problem: the trace of one step as the engine would
// record it, the state of each chunk, and the activations that each sublayer saves.
#ifndef GEMINID_TRAINING_FORECAST_PROBLEM_H_
#define GEMINID_TRAINING_FORECAST_PROBLEM_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "daemon/planner/tiers/tier_plan.h"
#include "training/forecast/costs.h"
#include "training/forecast/hardware.h"
#include "training/forecast/model.h"
#include "training/forecast/optimizer.h"
#include "training/forecast/rank_work.h"

namespace geminid::forecast {

// As --activations of geminid-train.
enum class Activations : std::uint8_t {
  kRecompute,  // every sublayer saves its input alone, on the device
  kKeep,       // every sublayer saves all, on the device
  kOffload,    // every sublayer saves all, in host memory or in a place of the arena
};

// One job on `nodes` equal machines. Sizes are of one node.
struct Job {
  Hardware hardware;
  std::uint32_t nodes = 1;
  std::uint32_t ranks = 1;       // of all nodes together; a multiple of `nodes`
  std::uint64_t host_bytes = 0;  // for training
  std::uint64_t disk_bytes = 0;  // 0: no disk
  double disk_read_bytes_per_second = 0;
  double disk_write_bytes_per_second = 0;
  double disk_endurance_bytes = 0;  // 0: unknown
  double cpu_update_share = 0.8;    // of host memory's rate, reached by the CPU optimizer
  Batch batch;                      // of one rank
  Optimizer optimizer = {};
  // Unset: kRecompute; a mesh is chosen with either of kRecompute and kKeep.
  std::optional<Activations> activations = std::nullopt;
  // The bytes of an fp32 number on a scale where an element takes kElementBytes. 2 if elements are
  // fp32 themselves: all sizes and rates are then given as if they were half as wide.
  std::uint64_t float_bytes = kFloatBytes;

  std::uint32_t ranks_per_node() const { return ranks / nodes; }
  bool keeps() const { return activations == Activations::kKeep; }
  bool offloads() const { return activations == Activations::kOffload; }
  bool recomputes() const { return !keeps() && !offloads(); }
};

// INVALID_ARGUMENT, naming what is wrong.
absl::Status Validate(const Job& job);

// The problem of one rank for the planner. Chunks are those the engine would make
// (client/zero/basics/layout.h). A moment is one sublayer or an end of the model. Each chunk
// stays on its device until the gradients of all its tensors are complete
// (client/zero/core/recorder.h). The output layer's two turns are one moment, as in the reference
// trainer. A moment lasts as long as its operations at the achieved rate, or its traffic at the
// rate of device memory, whichever is longer. Each sublayer has an activation: its input, or all
// that it saves. RESOURCE_EXHAUSTED if one operator alone needs more than any arena has.
absl::StatusOr<planner::TierProblem> MakeProblem(const Model& model, const Job& job);

// The same for a rank with `work` of the model. work.sharing_ranks() ranks shard its state.
absl::StatusOr<planner::TierProblem> MakeProblem(const Model& model, const Job& job,
                                                 const RankWork& work);

// The options with which the engine plans: gradients drain in one moment, extents are whole units.
planner::PlannerOptions EnginePlannerOptions();
std::uint64_t RoundDownToExtent(std::uint64_t bytes);

// The machine of `job`, as the planner sees it from one rank.
planner::Machine MakeMachine(const Job& job);

}  // namespace geminid::forecast

#endif  // GEMINID_TRAINING_FORECAST_PROBLEM_H_
