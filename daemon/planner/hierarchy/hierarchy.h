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
#include "daemon/planner/hierarchy/machine.h"
#include "daemon/planner/hierarchy/part.h"

// One step of training over three tiers: where the optimizer of each chunk runs and its state
// lives, what happens to each activation between forward and backward, which weights stay on the
// device (the device plan), and what goes to disk when host memory is short.
//
// Everything is a pure function of its arguments: no I/O, threads, clocks or randomness, the same
// bits on every machine. Sizes are bytes of one rank.

namespace geminid::planner {

// ---- What is to be planned ------------------------------------------------------------------

// What one chunk leaves on this rank besides its gathered weight. Entry i belongs to chunk i of
// the trace. A frozen chunk has weight_bytes only; an update of 0 parameters does not happen.
struct OptimizerItem {
  std::uint64_t parameters = 0;       // of this rank's shard
  std::uint64_t weight_bytes = 0;     // the shard's home copy
  std::uint64_t remainder_bytes = 0;  // what completes the weight to its fp32 master
  std::uint64_t moment_bytes = 0;     // exp_avg and exp_avg_sq
  // The reduced gradient, kept from backward until the update.
  std::uint64_t gradient_bytes = 0;

  std::uint64_t state_bytes() const { return weight_bytes + remainder_bytes + moment_bytes; }
};

// What a block saves in forward for its backward.
struct ActivationItem {
  std::uint64_t id = 0;  // chosen by the caller, never interpreted
  std::uint64_t bytes = 0;
  Moment produced = 0;  // a moment of forward
  Moment consumed = 0;  // the moment of backward that uses it; produced < consumed
  // Time to compute it again from `kept_bytes` of it, at the moment `consumed`.
  double recompute_seconds = 0;
  // The part that recomputing needs (the block's input) and that stays on the device then;
  // kept_bytes <= bytes.
  std::uint64_t kept_bytes = 0;
  bool can_recompute = true;
  bool can_offload = true;
};

struct HierarchyOptions {
  // For the device plan. The drain and lookahead also hold for offloaded activations.
  PlannerOptions planner = {};
  // The share of the device margin (arena less workspace, least activations and the chunks of the
  // fullest moment) that optimizer state may take, 0 to 1; absent: the prices decide.
  std::optional<double> gpu_margin_mem_ratio = std::nullopt;
  // Updates may start as soon as a chunk's gradient arrives, because nothing waits for the global
  // norm. False is exact with clipping: all updates after backward, in order of next use.
  bool update_during_backward = false;
  // Device memory that updates there take once, beside any state that is updated there.
  std::uint64_t device_spare_bytes = 0;
};

struct HierarchyProblem {
  // Device level. The workspace does NOT hold the activations listed below, the arena does not
  // exclude optimizer state, and transfers and gradients are those of state on the host. The links
  // are taken from `machine`; trace.link is ignored.
  Trace trace;
  Machine machine;
  std::vector<OptimizerItem> optimizer;     // one per chunk of the trace
  std::vector<ActivationItem> activations;  // any order
  HierarchyOptions options = {};
};

// INVALID_ARGUMENT naming the field. MakeHierarchyPlan calls it.
absl::Status ValidateHierarchyProblem(const HierarchyProblem& problem);

// ---- What is decided ------------------------------------------------------------------------

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

// Who holds bytes. Gathered weights on the device and home copies on host and disk are kWeights.
enum class Owner : std::uint8_t {
  kWeights,
  kOptimizerState,  // remainder and moments
  kGradients,       // shards waiting for their update
  kActivations,
  kWorkspace,
  kStaging,  // in flight: spare of the update, streamed state, disk buffers
};
inline constexpr std::size_t kNumOwners = 6;

// What an iteration keeps busy.
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
  // At the moment when the tier is fullest, so that the owners add up to the peak.
  std::array<std::uint64_t, kNumOwners> by_owner = {};
  std::uint64_t peak = 0;
  // What there is; peak <= limit when the plan fits.
  std::uint64_t limit = 0;

  std::uint64_t of(Owner owner) const { return by_owner[static_cast<std::size_t>(owner)]; }
};

// Where the time of a step goes, as the computation sees it; the parts add up to `step`.
struct StepSeconds {
  double compute = 0;    // operators, recomputation and device updates
  double head = 0;       // before the first operator: its weights travel
  double waits = 0;      // between operators: loads, drains, links out of breath
  double tail = 0;       // after the last operator: its gradients travel
  double optimizer = 0;  // updates that the computation does not hide
  double disk = 0;       // reads and writes that nothing hides
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

// What lies on disk, and when it moves. Host memory is the cache: "device" in the names of Trace
// and Plan then means host memory, and "host" the disk.
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
  std::uint64_t cache_bytes = 0;  // of host memory, to cache it
  // No plan for these decisions reads or writes less in a step, whatever the device plan loads.
  std::uint64_t least_read_bytes = 0;
  std::uint64_t least_written_bytes = 0;
  // The trace planned and its plan: chunk i of it is objects[i], moment t is moments[t].
  std::vector<DiskObject> objects;
  std::vector<DiskMoment> moments;
  Trace trace;
  Plan plan;
  // At the predicted step rate, all ranks of the node writing; infinite if nothing is written, 0 if
  // the endurance is unknown.
  double life_days = 0;
  bool wears_out_soon = false;  // life_days is known and below kLeastDiskLifeDays
};

// The usual warranty of a data-centre drive is five years; one worn in less than one is a surprise.
inline constexpr double kLeastDiskLifeDays = 365;

// One change that alone would make the problem fit.
struct Remedy {
  Tier tier = Tier::kDevice;
  std::uint64_t more_bytes = 0;  // for this rank
};

struct HierarchyPlan {
  Decisions decisions;
  // False if some tier lacks room. Then `lacking` and `remedies` say what would help, the bytes by
  // tier are those of the least demanding decisions, and times, traffic and plans are empty.
  bool fits = false;
  std::array<std::uint64_t, kNumTiers> lacking = {};
  std::vector<Remedy> remedies;  // the smallest of each kind; host before disk

  // Everything lies on the device: no plan is needed and nothing crosses a link.
  bool everything_on_device = false;
  // The trace with these decisions (workspace with activations and state, transfers without what
  // lies on the device, links, recomputation in the moments' time), and its plan.
  Trace device_trace;
  Plan device_plan;
  DiskPlan disk;

  std::array<TierBytes, kNumTiers> tiers;
  StepTraffic traffic;
  StepSeconds seconds;
  std::array<double, kNumResources> busy_seconds = {};
  // The busiest resource, if it fills the step; else what is waited for is latency, not rate, and
  // this is still the busiest.
  Resource bottleneck = Resource::kCompute;
  // No schedule of these decisions takes less: the busiest resource, with the least bytes.
  double step_lower_bound_seconds = 0;
  // No decisions take less: the Lagrangian dual of the choice (price.h), for this trace without
  // regard to disk, latency and order. <= step_lower_bound_seconds up to rounding.
  double any_decisions_lower_bound_seconds = 0;

  const TierBytes& tier(Tier which) const { return tiers[static_cast<std::size_t>(which)]; }
  double busy(Resource which) const { return busy_seconds[static_cast<std::size_t>(which)]; }
};

// Decides everything. Never predicts a longer step than all state on the host, all of it streamed,
// or all on the device if that fits (activations kept, or if that does not fit as they fit), or
// filling the device by time saved per byte and moment: these are always among the candidates. Only
// where everything fits on the device may others be faster, by kGainWorthHooks (1 %) at most.
//
// How: each chunk and activation is an item with options, each option takes bytes over an interval
// of moments and seconds on each resource. Lagrangian prices, one per byte in each segment of time
// and one per resource, select the best option of each item; they rise where demand exceeds room
// and on the resource that is critical (price.h). What they select is made to fit (round.h) and run
// through MakePlan on the C(t) it leaves; changes of one and two items are then tried while they
// pay (decision_search.h). The work is bounded in operations, not time.
//
// Not fitting is an answer, not an error: see HierarchyPlan::fits. Errors: INVALID_ARGUMENT for a
// malformed problem.
// Cost: well below a second for 10^4 chunks and activations together.
// `without`: parts left out, to measure what they are worth.
absl::StatusOr<HierarchyPlan> MakeHierarchyPlan(const HierarchyProblem& problem,
                                                const PartSet& without = {});

// The first decisions that fit, without the search for the fastest, at a fraction of its cost. Fits
// exactly where MakeHierarchyPlan does, and is the same where neither does.
absl::StatusOr<HierarchyPlan> MakeFirstFittingPlan(const HierarchyProblem& problem);

// The same cost model for given decisions: for comparing policies and for checking the above.
// INVALID_ARGUMENT if a decision is not allowed for its item or the margin ratio.
absl::StatusOr<HierarchyPlan> EvaluateDecisions(const HierarchyProblem& problem,
                                                const Decisions& decisions);

// All on the host, all kept: the decisions to start from when comparing.
Decisions AllHost(const HierarchyProblem& problem);

// A few lines in plain words: where state and activations are, what moves, how long a step takes
// and what bounds it, what goes to disk and how long the disks last; or what is missing.
std::string ExplainHierarchyPlan(const HierarchyProblem& problem, const HierarchyPlan& plan);

// Over decisions, plans and predictions: equal on all ranks and machines for equal problems.
std::uint64_t HierarchyPlanHash(const HierarchyPlan& plan);

const char* OptimizerPlaceName(OptimizerPlace place);
const char* ActivationPlaceName(ActivationPlace place);
const char* TierName(Tier tier);
const char* OwnerName(Owner owner);
const char* ResourceName(Resource resource);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_HIERARCHY_HIERARCHY_H_
