#ifndef GEMINID_DAEMON_PLANNER_HIERARCHY_HIERARCHY_H_
#define GEMINID_DAEMON_PLANNER_HIERARCHY_HIERARCHY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/planner/contract/plan.h"
#include "daemon/planner/contract/trace.h"
#include "daemon/planner/hierarchy/hierarchy_part.h"
#include "daemon/planner/hierarchy/machine.h"

// One step of training over three tiers: device, host and disk. The plan says
// - where the optimizer of each chunk runs and where its state lies;
// - what happens to each activation between forward and backward;
// - which weights stay on the device (the device plan);
// - which objects go to disk when host memory is short.
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

struct HierarchyOptions {
  // For the device plan. The drain and lookahead also hold for offloaded activations.
  PlannerOptions planner = {};
  // The fraction of the device margin that optimizer state may take, 0 to 1. The margin is the
  // arena less workspace, least activations and the chunks of the fullest moment. Absent: the
  // prices decide.
  std::optional<double> gpu_margin_mem_ratio = std::nullopt;
  // Updates may start as soon as a chunk's gradient arrives, because no update waits for the global
  // norm. False is exact with clipping: all updates come after backward, in order of next use.
  bool update_during_backward = false;
  // Device memory that updates on the device take once, beside any state that is updated there.
  std::uint64_t device_spare_bytes = 0;
};

struct HierarchyProblem {
  // Device level. The workspace does NOT hold the activations listed below. The arena does not
  // exclude optimizer state. Transfers and gradients are those of state on the host. The links come
  // from `machine`; trace.link is ignored.
  Trace trace;
  Machine machine;
  std::vector<OptimizerItem> optimizer;     // one per chunk of the trace
  std::vector<ActivationItem> activations;  // any order
  HierarchyOptions options = {};
};

// INVALID_ARGUMENT naming the field. MakeHierarchyPlan calls it.
absl::Status ValidateHierarchyProblem(const HierarchyProblem& problem);

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
  kStaging,  // in flight: spare of the update, streamed state, disk buffers
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

// An object that may lie on disk. Host memory is the cache of the disk. So "device" in the names of
// Trace and Plan then means host memory, and "host" means the disk.
struct DiskObject {
  ChunkIndex chunk = 0;
  bool is_state = false;  // remainder and moments; else the home copy of the weight
};

// A moment of the disk plan: an update of one chunk, or one moment of the device plan.
struct DiskMoment {
  bool is_update = false;
  std::uint32_t index = 0;  // the chunk updated, or the device moment
};

struct DiskPlan {
  bool used = false;
  std::uint64_t disk_bytes = 0;   // on disk, of this rank
  std::uint64_t cache_bytes = 0;  // of host memory, as the cache
  // No plan for these decisions reads or writes less in a step, whatever the device plan loads.
  std::uint64_t least_read_bytes = 0;
  std::uint64_t least_written_bytes = 0;
  // The trace that was planned, and its plan. Its chunk i is objects[i], its moment t is
  // moments[t].
  std::vector<DiskObject> objects;
  std::vector<DiskMoment> moments;
  Trace trace;
  Plan plan;
  // At the predicted step rate, while all ranks of the node write. Infinite if nothing is written,
  // 0 if the endurance is unknown.
  double life_days = 0;
  bool wears_out_soon = false;  // life_days is known and below kLeastDiskLifeDays
};

// The usual warranty of a data-centre drive is five years. Wear within one year is a surprise.
inline constexpr double kLeastDiskLifeDays = 365;

// One change that alone would make the problem fit.
struct Remedy {
  Tier tier = Tier::kDevice;
  std::uint64_t more_bytes = 0;  // for this rank
};

struct HierarchyPlan {
  Decisions decisions;
  // False if some tier lacks space. Then `lacking` and `remedies` say what would help, and the
  // bytes by tier are those of the least demanding decisions. Times, traffic and plans are empty.
  bool fits = false;
  std::array<std::uint64_t, kNumTiers> lacking = {};
  std::vector<Remedy> remedies;  // the smallest of each kind; host before disk

  // Everything lies on the device: no plan is needed and nothing crosses a link.
  bool everything_on_device = false;
  // The trace with these decisions, and its plan. The workspace contains activations and state.
  // Transfers exclude chunks that lie on the device. The moments' times contain recomputation.
  Trace device_trace;
  Plan device_plan;
  DiskPlan disk;

  std::array<TierBytes, kNumTiers> tiers;
  StepTraffic traffic;
  StepSeconds seconds;
  std::array<double, kNumResources> busy_seconds = {};
  // The busiest resource. If it does not fill the step, the step waits for latency, not for a rate.
  Resource bottleneck = Resource::kCompute;
  // No schedule of these decisions takes less than the busiest resource with the least bytes.
  double step_lower_bound_seconds = 0;
  // No decisions take less: the Lagrangian dual of the choice (price.h), for this trace without
  // regard to disk, latency and order. <= step_lower_bound_seconds up to rounding.
  double any_decisions_lower_bound_seconds = 0;

  const TierBytes& tier(Tier which) const { return tiers[static_cast<std::size_t>(which)]; }
  double busy(Resource which) const { return busy_seconds[static_cast<std::size_t>(which)]; }
};

// Makes all decisions. The predicted step is never longer than that of these decisions, which are
// always among the candidates:
// - all state on the host, all of it streamed, or all on the device if that fits. Activations are
//   kept; if they do not fit, as many as fit;
// - the device filled by time saved per byte and moment.
// Only if everything fits on the device may others be faster, by kGainWorthHooks (1 %) at most.
//
// How: each chunk and activation is an item with options. Each option takes bytes over an interval
// of moments, and seconds on each resource. Lagrangian prices select the best option of each item
// (price.h). There is one price per byte in each segment of time, and one per resource. Prices rise
// where demand exceeds the space, and on the critical resource. The selection is made to fit
// (round.h), and MakePlan runs on the capacity that it leaves. Changes of one and two items are
// then tried while they pay (decision_search.h). Counted operations bound the work, not time.
//
// A plan that does not fit is a result, not an error: see HierarchyPlan::fits. Errors:
// INVALID_ARGUMENT for a malformed problem.
// Cost: well below a second for 10^4 chunks and activations together.
// `without`: parts that the planner leaves out, to measure what they are worth.
absl::StatusOr<HierarchyPlan> MakeHierarchyPlan(const HierarchyProblem& problem,
                                                const HierarchyPartSet& without = {});

// The first decisions that fit, without the search for the fastest, at a fraction of its cost. Fits
// exactly if MakeHierarchyPlan's plan does. If neither fits, the plans are the same.
absl::StatusOr<HierarchyPlan> MakeFirstFittingPlan(const HierarchyProblem& problem);

// The same cost model for given decisions, to compare policies and to check the functions above.
// INVALID_ARGUMENT if a decision is not allowed for its item or exceeds the margin ratio.
absl::StatusOr<HierarchyPlan> EvaluateDecisions(const HierarchyProblem& problem,
                                                const Decisions& decisions);

// All state on the host, all activations kept: the decisions to start from when comparing.
Decisions AllHost(const HierarchyProblem& problem);

// A few lines in plain words: where state and activations lie, which bytes move, how long a step
// takes and what bounds it, what goes to disk, and how long the disks last. If the plan does not
// fit, the lines say which memory is missing.
std::string ExplainHierarchyPlan(const HierarchyProblem& problem, const HierarchyPlan& plan);

// A hash over decisions, plans and predictions: equal on all ranks and machines for equal problems.
std::uint64_t HierarchyPlanHash(const HierarchyPlan& plan);

const char* OptimizerPlaceName(OptimizerPlace place);
const char* ActivationPlaceName(ActivationPlace place);
const char* TierName(Tier tier);
const char* OwnerName(Owner owner);
const char* ResourceName(Resource resource);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_HIERARCHY_HIERARCHY_H_
