#ifndef GEMINID_DAEMON_PLANNER_TIERS_TIER_PLAN_H_
#define GEMINID_DAEMON_PLANNER_TIERS_TIER_PLAN_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/planner/contract/plan.h"
#include "daemon/planner/contract/trace.h"
#include "daemon/planner/tiers/machine.h"

// The cost of one step of training over three tiers (device, host and disk), for given decisions:
// - where the optimizer of each chunk runs and where its state lies;
// - whether each activation is kept, offloaded or recomputed between forward and backward.
// The planner of the device (MakePlan) decides which weights stay on the device. State on disk is
// added by the caller, who knows the files.
//
// Everything is a pure function of its arguments: no I/O, threads, clocks or randomness, and the
// same bits on every machine. Sizes are bytes of one rank.

namespace geminid::planner {

// ---- The problem ----------------------------------------------------------------------------

// The memory of one chunk on this rank besides its gathered weight. Entry i belongs to chunk i of
// the trace. A frozen chunk has weight_bytes only. A chunk with 0 parameters is not updated.
struct OptimizerItem {
  std::uint64_t parameters = 0;       // of this rank's shard
  std::uint64_t weight_bytes = 0;     // the shard's home copy
  std::uint64_t remainder_bytes = 0;  // completes the weight to its fp32 master
  std::uint64_t moment_bytes = 0;     // exp_avg and exp_avg_sq
  // The reduced gradient, which lives from backward until the update.
  std::uint64_t gradient_bytes = 0;

  std::uint64_t state_bytes() const { return weight_bytes + remainder_bytes + moment_bytes; }
};

// The activations that a block saves in forward for its backward.
struct ActivationItem {
  std::uint64_t id = 0;  // chosen by the caller, never interpreted
  std::uint64_t bytes = 0;
  Moment produced = 0;  // a moment of forward
  Moment consumed = 0;  // the moment of backward that uses it; produced < consumed
  // Time to recompute the activation from `kept_bytes` of it, at the moment `consumed`.
  double recompute_seconds = 0;
  // The part that recomputation needs (the block's input) and that then stays on the device.
  // kept_bytes <= bytes.
  std::uint64_t kept_bytes = 0;
  bool can_recompute = true;
  bool can_offload = true;
};

struct TierProblem {
  // Device level. The workspace does NOT hold the activations listed below. The arena does not
  // exclude optimizer state. Transfers and gradients are those of state on the host. The links come
  // from `machine`; trace.link is ignored.
  Trace trace;
  Machine machine;
  std::vector<OptimizerItem> optimizer;     // one per chunk of the trace
  std::vector<ActivationItem> activations;  // any order
  // The most places that offloaded activations may have in the arena (Decisions).
  std::uint32_t most_activation_places = 0;
  PlannerOptions planner_options = {};  // for the device plan
  // Device memory that updates on the device take once, beside any state that is updated there.
  std::uint64_t device_spare_bytes = 0;
};

// ---- The decisions --------------------------------------------------------------------------

enum class OptimizerPlace : std::uint8_t {
  kHost,      // state and update on the host; gradients go down, weights come up
  kDevice,    // state and update on the device; nothing of the chunk crosses the link
  kStreamed,  // state on the host; it goes up for the update and comes back
};

enum class ActivationPlace : std::uint8_t { kKeep, kOffload, kRecompute };

struct Decisions {
  std::vector<OptimizerPlace> optimizer;     // one per chunk
  std::vector<ActivationPlace> activations;  // one per activation item
  // Offloaded activations pass through this many places of the arena, each as large as the largest
  // of them (geminid/activation_stack.h). The last ones of the forward pass, as many as there are
  // places, stay there.
  std::uint32_t activation_places = 0;
};

enum class Tier : std::uint8_t { kDevice, kHost, kDisk };
inline constexpr std::size_t kNumTiers = 3;

// The owner of bytes. Gathered weights on the device and home copies on host and disk are kWeights.
enum class Owner : std::uint8_t {
  kWeights,
  kOptimizerState,  // remainder and moments
  kGradients,       // shards waiting for their update
  kActivations,
  kWorkspace,
  kStaging,  // in flight: spare of the update, streamed state
};
inline constexpr std::size_t kNumOwners = 6;

// The resources that an iteration keeps busy.
enum class Resource : std::uint8_t {
  kCompute,     // operators, recomputation and updates on the device
  kUp,          // host to device
  kDown,        // device to host
  kBothWays,    // the two directions where they share a limit
  kHostMemory,  // bytes through host memory
  kCpuUpdate,   // the CPU optimizer
  kDiskRead,
  kDiskWrite,
};
inline constexpr std::size_t kNumResources = 8;

struct TierBytes {
  // Taken at the moment when the tier is fullest, so that the owners add up to the peak.
  std::array<std::uint64_t, kNumOwners> by_owner = {};
  std::uint64_t peak = 0;
  // The available bytes; peak <= limit when the plan fits.
  std::uint64_t limit = 0;

  std::uint64_t of(Owner owner) const { return by_owner[static_cast<std::size_t>(owner)]; }
};

// How the time of a step is spent, as the computation sees it. The parts add up to `step`.
struct StepSeconds {
  double compute = 0;    // operators, recomputation and device updates
  double head = 0;       // before the first operator: the transfer of its weights
  double waits = 0;      // between operators: loads, drains, saturated links
  double tail = 0;       // after the last operator: the transfer of its gradients
  double optimizer = 0;  // updates that the computation does not hide
  double disk = 0;       // reads and writes that no computation hides
  double step = 0;
};

// Bytes one rank moves in one step.
struct StepTraffic {
  std::uint64_t weights_up = 0;
  std::uint64_t gradients_down = 0;
  std::uint64_t activations_up = 0;
  std::uint64_t activations_down = 0;
  std::uint64_t state_up = 0;  // streamed
  std::uint64_t state_down = 0;
  std::uint64_t host_memory = 0;  // reads and writes, transfers included
  std::uint64_t disk_read = 0;
  std::uint64_t disk_written = 0;

  std::uint64_t up() const { return weights_up + activations_up + state_up; }
  std::uint64_t down() const { return gradients_down + activations_down + state_down; }
};

// State on disk. EvaluateDecisions leaves it empty.
struct DiskUse {
  bool used = false;
  std::uint64_t disk_bytes = 0;  // on disk, of this rank
  // At the predicted step rate, while all ranks of the node write. 0 if the endurance is unknown.
  double life_days = 0;
  bool wears_out_soon = false;  // life_days is known and below kLeastDiskLifeDays
};

// The usual warranty of a data-centre drive is five years. Wear within one year is a surprise.
inline constexpr double kLeastDiskLifeDays = 365;

struct TierPlan {
  Decisions decisions;
  // False if some tier lacks space. Then `lacking` says how much, and EvaluateDecisions leaves
  // times, traffic and the device plan empty.
  bool fits = false;
  std::array<std::uint64_t, kNumTiers> lacking = {};

  // Everything lies on the device: no plan is needed and nothing crosses a link.
  bool everything_on_device = false;
  // The trace with these decisions, and its plan. The workspace contains activations and state.
  // Transfers exclude chunks that lie on the device. The moments' times contain recomputation.
  Trace device_trace;
  Plan device_plan;
  DiskUse disk;

  std::array<TierBytes, kNumTiers> tiers;
  StepTraffic traffic;
  StepSeconds seconds;
  std::array<double, kNumResources> busy_seconds = {};
  // The busiest resource. If it does not fill the step, the step waits for latency, not for a rate.
  Resource bottleneck = Resource::kCompute;
  // No schedule of these decisions takes less than the busiest resource with the least bytes.
  double step_lower_bound_seconds = 0;

  const TierBytes& tier(Tier which) const { return tiers[static_cast<std::size_t>(which)]; }
  double busy(Resource which) const { return busy_seconds[static_cast<std::size_t>(which)]; }
};

// The bytes and seconds of given decisions. A plan that does not fit is a result, not an error: see
// TierPlan::fits. INVALID_ARGUMENT for a malformed problem, and for a decision that is not allowed
// for its item.
absl::StatusOr<TierPlan> EvaluateDecisions(const TierProblem& problem, const Decisions& decisions);

// All state on the host, all activations kept: the decisions to start from when comparing.
Decisions AllHost(const TierProblem& problem);

// A few lines in plain words: where state and activations lie, which bytes move, how long a step
// takes and what bounds it, what is on disk, and how long the disks last. If the plan does not fit,
// the lines say which memory is missing.
std::string ExplainTierPlan(const TierProblem& problem, const TierPlan& plan);

const char* OptimizerPlaceName(OptimizerPlace place);
const char* ActivationPlaceName(ActivationPlace place);
const char* TierName(Tier tier);
const char* OwnerName(Owner owner);
const char* ResourceName(Resource resource);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_TIERS_TIER_PLAN_H_
