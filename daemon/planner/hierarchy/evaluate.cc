#include "daemon/planner/hierarchy/evaluate.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/pages.h"
#include "daemon/planner/hierarchy/disk.h"
#include "daemon/planner/hierarchy/ledger.h"
#include "daemon/planner/hierarchy/update.h"
#include "daemon/planner/make_plan.h"

namespace geminid::planner {
namespace {

// Weights always keep this fraction of the link beside activations. The model then says that the
// link is the bottleneck, and the busy time says by how much.
constexpr double kLeastLinkShare = 1e-3;

struct ActivationTraffic {
  std::uint64_t bytes = 0;  // each way
  double recompute_seconds = 0;
};

ActivationTraffic TrafficOf(const HierarchyProblem& problem, const Decisions& decisions) {
  ActivationTraffic traffic;
  for (std::size_t i = 0; i < problem.activations.size(); ++i) {
    const ActivationItem& item = problem.activations[i];
    if (decisions.activations[i] == ActivationPlace::kOffload) traffic.bytes += item.bytes;
    if (decisions.activations[i] == ActivationPlace::kRecompute) {
      traffic.recompute_seconds += item.recompute_seconds;
    }
  }
  return traffic;
}

// The fraction of one direction that activations leave to the weights, averaged over the step. The
// step lasts at least as long as the computation, and at least as long as both transfers together.
double ShareLeft(double activation_seconds, double weight_seconds, double compute_seconds) {
  if (activation_seconds <= 0) return 1;
  const double step = std::max(compute_seconds, activation_seconds + weight_seconds);
  return std::max(kLeastLinkShare, 1 - activation_seconds / step);
}

void SetChunks(const PreparedProblem& prepared, const Decisions& decisions, Trace& trace) {
  const HierarchyProblem& problem = prepared.problem;
  for (std::size_t c = 0; c < trace.chunks.size(); ++c) {
    const OptimizerPlace place = decisions.optimizer[c];
    if (place == OptimizerPlace::kHost) continue;
    Chunk& chunk = trace.chunks[c];
    chunk.gradient_bytes = 0;
    if (place == OptimizerPlace::kDevice) chunk.transfer_bytes = 0;
    if (!prepared.updated(static_cast<ChunkIndex>(c))) continue;
    const Moment at = problem.options.update_during_backward && prepared.gradient_at[c] != kNoMoment
                          ? prepared.gradient_at[c]
                          : prepared.first_use[c];
    trace.moments[at].compute_seconds +=
        CostOfUpdate(problem.machine, problem.optimizer[c], 0, place).device;
  }
}

void SetLink(const PreparedProblem& prepared, const ActivationTraffic& traffic, Trace& trace) {
  const Machine& machine = prepared.problem.machine;
  double up_bytes = 0;
  double down_bytes = 0;
  bool crosses = false;
  for (std::size_t c = 0; c < trace.chunks.size(); ++c) {
    if (prepared.first_use[c] == kNoMoment) continue;
    const Chunk& chunk = trace.chunks[c];
    up_bytes += static_cast<double>(chunk.transfer_bytes);
    down_bytes += static_cast<double>(chunk.gradient_bytes);
    crosses = crosses || chunk.transfer_bytes > 0 || chunk.gradient_bytes > 0;
  }
  double compute = 0;
  for (const MomentTrace& moment : trace.moments) compute += moment.compute_seconds;
  const double up = UpRate(machine);
  const double down = DownRate(machine);
  const auto bytes = static_cast<double>(traffic.bytes);
  trace.link = {};
  trace.link.h2d_bytes_per_second = up * ShareLeft(bytes / up, up_bytes / up, compute);
  trace.link.d2h_bytes_per_second = down * ShareLeft(bytes / down, down_bytes / down, compute);
  // A gather from the device's own copy is not a transfer.
  trace.link.latency_seconds = crosses ? machine.latency_seconds : 0;
  trace.link.both_directions_share = std::clamp(BothRate(machine) / (up + down), 0.5, 1.0);
}

Trace DeviceTrace(const PreparedProblem& prepared, const Decisions& decisions,
                  const Occupancy& occupancy, const ActivationTraffic& traffic) {
  const HierarchyProblem& problem = prepared.problem;
  Trace trace = problem.trace;
  for (std::size_t t = 0; t < trace.moments.size(); ++t) {
    trace.moments[t].workspace_bytes +=
        occupancy.device_activations[t] + occupancy.device_constant();
  }
  for (std::size_t i = 0; i < problem.activations.size(); ++i) {
    if (decisions.activations[i] != ActivationPlace::kRecompute) continue;
    const ActivationItem& item = problem.activations[i];
    trace.moments[item.consumed].compute_seconds += item.recompute_seconds;
  }
  SetChunks(prepared, decisions, trace);
  SetLink(prepared, traffic, trace);
  return trace;
}

// The start of each moment by the plan, after its own waits. Entry N is the end of the iteration.
std::vector<double> PlannedStarts(const Trace& trace, const Plan& plan) {
  std::vector<double> starts(trace.moments.size() + 1, 0);
  for (const Stall& stall : plan.stalls) starts[stall.moment] += stall.seconds;
  double now = 0;
  for (std::size_t t = 0; t < starts.size(); ++t) {
    now += starts[t];
    starts[t] = now;
    if (t < trace.moments.size()) now += trace.moments[t].compute_seconds;
  }
  return starts;
}

void FillTraffic(const PreparedProblem& prepared, const Decisions& decisions,
                 const ActivationTraffic& activations, HierarchyPlan& plan) {
  const HierarchyProblem& problem = prepared.problem;
  StepTraffic& traffic = plan.traffic;
  traffic.weights_up = plan.device_plan.h2d_bytes;
  traffic.gradients_down = plan.device_plan.d2h_bytes;
  traffic.activations_up = activations.bytes;
  traffic.activations_down = activations.bytes;
  std::uint64_t kernel = 0;
  for (ChunkIndex c = 0; c < problem.optimizer.size(); ++c) {
    if (!prepared.updated(c)) continue;
    const OptimizerItem& item = problem.optimizer[c];
    if (decisions.optimizer[c] == OptimizerPlace::kStreamed) traffic.state_up += item.state_bytes();
    if (decisions.optimizer[c] == OptimizerPlace::kHost) {
      kernel += 2 * item.state_bytes() + item.gradient_bytes;
    }
  }
  traffic.state_down = traffic.state_up;
  traffic.host_memory = kernel + traffic.up() + traffic.down();
}

// The traffic with the least bytes: those that the device plan and the disk plan choose are set to
// their lower bounds.
StepTraffic LeastTraffic(const HierarchyPlan& plan) {
  StepTraffic least = plan.traffic;
  least.weights_up = plan.device_plan.lower_bound_bytes;
  least.disk_read = plan.disk.least_read_bytes;
  least.disk_written = plan.disk.least_written_bytes;
  const auto all = [](const StepTraffic& traffic) {
    return traffic.weights_up + traffic.disk_read + traffic.disk_written;
  };
  least.host_memory -= all(plan.traffic) - all(least);
  return least;
}

ResourceSeconds BusySeconds(const PreparedProblem& prepared, const Decisions& decisions,
                            const HierarchyPlan& plan, const StepTraffic& traffic) {
  const HierarchyProblem& problem = prepared.problem;
  const Machine& machine = problem.machine;
  ResourceSeconds busy = {};
  AddTransfer(machine, static_cast<double>(traffic.up()), static_cast<double>(traffic.down()),
              busy);
  const auto ranks = static_cast<double>(machine.ranks_on_node);
  const std::uint64_t other = traffic.host_memory - traffic.up() - traffic.down();
  busy[static_cast<std::size_t>(Resource::kHostMemory)] +=
      static_cast<double>(other) * ranks / machine.host_memory_bytes_per_second;
  busy[static_cast<std::size_t>(Resource::kCompute)] = plan.device_plan.compute_seconds;
  for (ChunkIndex c = 0; c < problem.optimizer.size(); ++c) {
    if (!prepared.updated(c)) continue;
    busy[static_cast<std::size_t>(Resource::kCpuUpdate)] +=
        CostOfUpdate(machine, problem.optimizer[c], 0, decisions.optimizer[c]).cpu;
  }
  if (plan.disk.used) {
    busy[static_cast<std::size_t>(Resource::kDiskRead)] =
        static_cast<double>(traffic.disk_read) * ranks / machine.disk_read_bytes_per_second;
    busy[static_cast<std::size_t>(Resource::kDiskWrite)] =
        static_cast<double>(traffic.disk_written) * ranks / machine.disk_write_bytes_per_second;
  }
  return busy;
}

// Fills everything but the part of the disk, which FinishSeconds adds.
void FillSeconds(const PreparedProblem& prepared, const Decisions& decisions,
                 const Occupancy& occupancy, HierarchyPlan& plan) {
  StepSeconds& seconds = plan.seconds;
  const std::size_t moments = plan.device_trace.moments.size();
  seconds.compute = plan.device_plan.compute_seconds;
  bool computed = false;
  std::size_t at = 0;
  for (const Stall& stall : plan.device_plan.stalls) {
    for (; at < stall.moment && at < moments; ++at) {
      computed = computed || plan.device_trace.moments[at].compute_seconds > 0;
    }
    (stall.moment == moments ? seconds.tail
     : computed              ? seconds.waits
                             : seconds.head) += stall.seconds;
  }
  seconds.waits += occupancy.late_seconds;
  seconds.optimizer = ExposedSeconds(UpdateJobs(prepared, decisions, plan, nullptr));
  seconds.step = seconds.compute + seconds.head + seconds.waits + seconds.tail + seconds.optimizer;
}

// A step lasts at least as long as its busiest resource is busy.
void FinishSeconds(const PreparedProblem& prepared, const Decisions& decisions,
                   HierarchyPlan& plan) {
  plan.busy_seconds = BusySeconds(prepared, decisions, plan, plan.traffic);
  const ResourceSeconds least = BusySeconds(prepared, decisions, plan, LeastTraffic(plan));
  plan.step_lower_bound_seconds = *std::max_element(least.begin(), least.end());
  const auto busiest = std::max_element(plan.busy_seconds.begin(), plan.busy_seconds.end());
  plan.bottleneck = static_cast<Resource>(busiest - plan.busy_seconds.begin());
  const double missing = *busiest - plan.seconds.step;
  if (missing <= 0) return;
  const bool disk =
      plan.bottleneck == Resource::kDiskRead || plan.bottleneck == Resource::kDiskWrite;
  (disk ? plan.seconds.disk : plan.seconds.waits) += missing;
  plan.seconds.step = *busiest;
}

// The bytes that the arena lacks for these decisions, whenever the loads happen.
std::uint64_t DeviceShortage(const PreparedProblem& prepared, const Occupancy& occupancy) {
  const std::uint64_t arena = prepared.problem.trace.arena_bytes;
  std::uint64_t needed = 0;
  for (std::size_t t = 0; t < prepared.required_bytes.size(); ++t) {
    needed = std::max(needed, prepared.required_bytes[t] + occupancy.device_activations[t] +
                                  occupancy.device_constant() +
                                  prepared.problem.trace.moments[t].workspace_bytes);
  }
  return needed > arena ? needed - arena : 0;
}

// Leaves only the fields that say why the plan does not fit.
void Refuse(HierarchyPlan& plan) {
  HierarchyPlan refused;
  refused.decisions = std::move(plan.decisions);
  refused.lacking = plan.lacking;
  refused.remedies = std::move(plan.remedies);
  refused.tiers = plan.tiers;
  plan = std::move(refused);
}

}  // namespace

PreparedProblem::PreparedProblem(const HierarchyProblem& problem_in,
                                 const HierarchyPartSet& without_in)
    : problem(problem_in),
      without(without_in),
      used_bytes(UsedBytes(problem_in)),
      required_bytes(used_bytes),
      first_use(problem_in.trace.chunks.size(), kNoMoment),
      gradient_at(problem_in.trace.chunks.size(), kNoMoment),
      device_state_limit(DeviceStateLimit(problem_in)) {
  const std::vector<MomentTrace>& moments = problem.trace.moments;
  work = static_cast<std::int64_t>(moments.size() + first_use.size() + problem.activations.size());
  for (std::size_t t = 0; t < moments.size(); ++t) {
    work += static_cast<std::int64_t>(moments[t].uses.size());
    for (const Use& use : moments[t].uses) {
      if (first_use[use.chunk] == kNoMoment) first_use[use.chunk] = static_cast<Moment>(t);
      if (use.invalidates) gradient_at[use.chunk] = static_cast<Moment>(t);
    }
  }
  if (problem.options.planner.policy != Policy::kDevice) return;
  const std::uint64_t alignment = problem.options.planner.alignment_bytes;
  std::uint64_t all = 0;
  for (std::size_t c = 0; c < first_use.size(); ++c) {
    if (first_use[c] == kNoMoment) continue;
    all += base::RoundUp(problem.trace.chunks[c].size_bytes, alignment);
  }
  required_bytes.assign(moments.size(), all);
}

void AddTransfer(const Machine& machine, double up_bytes, double down_bytes,
                 ResourceSeconds& seconds) {
  const auto ranks = static_cast<double>(machine.ranks_on_node);
  seconds[static_cast<std::size_t>(Resource::kUp)] += up_bytes / UpRate(machine);
  seconds[static_cast<std::size_t>(Resource::kDown)] += down_bytes / DownRate(machine);
  seconds[static_cast<std::size_t>(Resource::kBothWays)] +=
      (up_bytes + down_bytes) / BothRate(machine);
  seconds[static_cast<std::size_t>(Resource::kHostMemory)] +=
      (up_bytes + down_bytes) * ranks / machine.host_memory_bytes_per_second;
}

absl::Status CheckDecisions(const PreparedProblem& prepared, const Decisions& decisions) {
  const HierarchyProblem& problem = prepared.problem;
  if (decisions.optimizer.size() != problem.optimizer.size() ||
      decisions.activations.size() != problem.activations.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("decisions: ", decisions.optimizer.size(), " chunks and ",
                     decisions.activations.size(), " activations, but the problem has ",
                     problem.optimizer.size(), " and ", problem.activations.size()));
  }
  std::uint64_t state = 0;
  for (std::size_t c = 0; c < problem.optimizer.size(); ++c) {
    if (decisions.optimizer[c] == OptimizerPlace::kDevice) {
      state += DeviceStateBytes(problem.optimizer[c]);
    }
    if (decisions.optimizer[c] == OptimizerPlace::kStreamed &&
        problem.optimizer[c].parameters == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("decisions.optimizer[", c, "]: nothing to stream, it is never updated"));
    }
  }
  if (state > prepared.device_state_limit) {
    return absl::InvalidArgumentError(
        absl::StrCat("decisions.optimizer: ", state, " bytes of state on the device, but ",
                     "gpu_margin_mem_ratio allows ", prepared.device_state_limit));
  }
  for (std::size_t i = 0; i < problem.activations.size(); ++i) {
    const ActivationItem& item = problem.activations[i];
    const ActivationPlace place = decisions.activations[i];
    if ((place == ActivationPlace::kOffload && !item.can_offload) ||
        (place == ActivationPlace::kRecompute && !item.can_recompute)) {
      return absl::InvalidArgumentError(absl::StrCat("decisions.activations[", i,
                                                     "]: ", ActivationPlaceName(place),
                                                     " is not allowed for this activation"));
    }
  }
  return absl::OkStatus();
}

std::vector<UpdateJob> UpdateJobs(const PreparedProblem& prepared, const Decisions& decisions,
                                  const HierarchyPlan& plan, std::vector<ChunkIndex>* chunks) {
  const HierarchyProblem& problem = prepared.problem;
  const LinkModel& link = plan.device_trace.link;
  const std::vector<double> starts = PlannedStarts(plan.device_trace, plan.device_plan);
  struct Entry {
    double gradient_at;
    Moment first_use;
    ChunkIndex chunk;
  };
  std::vector<Entry> order;
  for (ChunkIndex c = 0; c < problem.optimizer.size(); ++c) {
    if (!prepared.updated(c) || decisions.optimizer[c] == OptimizerPlace::kDevice) continue;
    double gradient_at = 0;
    if (problem.options.update_during_backward && prepared.gradient_at[c] != kNoMoment) {
      const Moment at = prepared.gradient_at[c];
      const double produced = starts[at] + plan.device_trace.moments[at].compute_seconds;
      const double down = static_cast<double>(plan.device_trace.chunks[c].gradient_bytes) /
                          link.d2h_bytes_per_second;
      gradient_at = std::min(0.0, produced + link.latency_seconds + down - starts.back());
    }
    order.push_back({gradient_at, prepared.first_use[c], c});
  }
  std::sort(order.begin(), order.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.gradient_at, a.first_use, a.chunk) <
           std::tie(b.gradient_at, b.first_use, b.chunk);
  });
  std::vector<UpdateJob> jobs;
  jobs.reserve(order.size());
  for (const Entry& entry : order) {
    const OptimizerPlace place = decisions.optimizer[entry.chunk];
    const std::uint64_t weight = problem.trace.chunks[entry.chunk].transfer_bytes;
    jobs.push_back(
        {.place = place,
         .cost = CostOfUpdate(problem.machine, problem.optimizer[entry.chunk], weight, place),
         .gradient_at = entry.gradient_at,
         .needed_at = starts[entry.first_use]});
    if (chunks != nullptr) chunks->push_back(entry.chunk);
  }
  return jobs;
}

absl::StatusOr<HierarchyPlan> Evaluate(const PreparedProblem& prepared,
                                       const Decisions& decisions) {
  HierarchyPlan plan;
  plan.decisions = decisions;
  const Occupancy occupancy = ComputeOccupancy(prepared.problem, decisions);
  const std::uint64_t shortage = DeviceShortage(prepared, occupancy);
  plan.lacking[static_cast<std::size_t>(Tier::kDevice)] = shortage;
  if (shortage == 0) {
    const ActivationTraffic traffic = TrafficOf(prepared.problem, decisions);
    plan.device_trace = DeviceTrace(prepared, decisions, occupancy, traffic);
    absl::StatusOr<Plan> device = MakePlan(plan.device_trace, prepared.problem.options.planner);
    if (!device.ok()) return device.status();
    plan.device_plan = *std::move(device);
    FillTraffic(prepared, decisions, traffic, plan);
    FillSeconds(prepared, decisions, occupancy, plan);
  }
  FillDeviceLedger(prepared, occupancy, plan);
  if (absl::Status status = PlanHostAndDisk(prepared, occupancy, plan); !status.ok()) return status;
  plan.fits = std::all_of(plan.lacking.begin(), plan.lacking.end(),
                          [](std::uint64_t bytes) { return bytes == 0; });
  if (!plan.fits) {
    Refuse(plan);
    return plan;
  }
  FinishSeconds(prepared, decisions, plan);
  RateDiskLife(prepared.problem.machine, plan);
  const auto on_device = [](OptimizerPlace place) { return place == OptimizerPlace::kDevice; };
  plan.everything_on_device =
      plan.device_plan.everything_fits && plan.traffic.up() == 0 && plan.traffic.down() == 0 &&
      std::all_of(decisions.optimizer.begin(), decisions.optimizer.end(), on_device);
  return plan;
}

}  // namespace geminid::planner
