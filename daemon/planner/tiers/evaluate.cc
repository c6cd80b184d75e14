#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "daemon/planner/make_plan.h"
#include "daemon/planner/tiers/ledger.h"
#include "daemon/planner/tiers/occupancy.h"
#include "daemon/planner/tiers/tier_plan.h"
#include "daemon/planner/tiers/update.h"
#include "daemon/planner/tiers/validate.h"

namespace geminid::planner {
namespace {

constexpr Moment kNoMoment = UINT32_MAX;
// Weights always keep this fraction of the link beside activations. The model then says that the
// link is the bottleneck, and the busy time says by how much.
constexpr double kLeastLinkShare = 1e-3;

using ResourceSeconds = std::array<double, kNumResources>;

// A problem with its decisions, and what follows from them.
struct Evaluation {
  Evaluation(const TierProblem& problem_in, const Decisions& decisions_in)
      : problem(problem_in),
        decisions(decisions_in),
        occupancy(ComputeOccupancy(problem_in, decisions_in)),
        offload_wait_seconds(OffloadWaitSeconds(problem_in, decisions_in)),
        used_bytes(UsedBytes(problem_in)),
        first_use(problem_in.trace.chunks.size(), kNoMoment) {
    const std::vector<MomentTrace>& moments = problem.trace.moments;
    for (std::size_t t = 0; t < moments.size(); ++t) {
      for (const Use& use : moments[t].uses) {
        if (first_use[use.chunk] == kNoMoment) first_use[use.chunk] = static_cast<Moment>(t);
      }
    }
  }

  bool updated(ChunkIndex chunk) const {
    return problem.optimizer[chunk].parameters > 0 && first_use[chunk] != kNoMoment;
  }

  const TierProblem& problem;
  const Decisions& decisions;
  const Occupancy occupancy;
  const double offload_wait_seconds;
  const std::vector<std::uint64_t> used_bytes;  // per moment, of the chunks it uses
  std::vector<Moment> first_use;                // per chunk; kNoMoment if nothing uses it
};

// The fraction of one direction that activations leave to the weights, averaged over the step. The
// step lasts at least as long as the computation, and at least as long as both transfers together.
double ShareLeft(double activation_seconds, double weight_seconds, double compute_seconds) {
  if (activation_seconds <= 0) return 1;
  const double step = std::max(compute_seconds, activation_seconds + weight_seconds);
  return std::max(kLeastLinkShare, 1 - activation_seconds / step);
}

void SetChunks(const Evaluation& evaluation, Trace& trace) {
  const TierProblem& problem = evaluation.problem;
  for (std::size_t c = 0; c < trace.chunks.size(); ++c) {
    const OptimizerPlace place = evaluation.decisions.optimizer[c];
    if (place == OptimizerPlace::kHost) continue;
    Chunk& chunk = trace.chunks[c];
    chunk.gradient_bytes = 0;
    if (place == OptimizerPlace::kDevice) chunk.transfer_bytes = 0;
    if (!evaluation.updated(static_cast<ChunkIndex>(c))) continue;
    trace.moments[evaluation.first_use[c]].compute_seconds +=
        CostOfUpdate(problem.machine, problem.optimizer[c], 0, place).device;
  }
}

void SetLink(const Evaluation& evaluation, Trace& trace) {
  const Machine& machine = evaluation.problem.machine;
  double up_bytes = 0;
  double down_bytes = 0;
  bool crosses = false;
  for (std::size_t c = 0; c < trace.chunks.size(); ++c) {
    if (evaluation.first_use[c] == kNoMoment) continue;
    const Chunk& chunk = trace.chunks[c];
    up_bytes += static_cast<double>(chunk.transfer_bytes);
    down_bytes += static_cast<double>(chunk.gradient_bytes);
    crosses = crosses || chunk.transfer_bytes > 0 || chunk.gradient_bytes > 0;
  }
  // Weights move while the computation waits for activations, too.
  double compute = evaluation.offload_wait_seconds;
  for (const MomentTrace& moment : trace.moments) compute += moment.compute_seconds;
  const double up = UpRate(machine);
  const double down = DownRate(machine);
  const auto bytes = static_cast<double>(evaluation.occupancy.host_activations);
  trace.link = {};
  trace.link.h2d_bytes_per_second = up * ShareLeft(bytes / up, up_bytes / up, compute);
  trace.link.d2h_bytes_per_second = down * ShareLeft(bytes / down, down_bytes / down, compute);
  // A gather from the device's own copy is not a transfer.
  trace.link.latency_seconds = crosses ? machine.latency_seconds : 0;
  trace.link.both_directions_share = std::clamp(BothRate(machine) / (up + down), 0.5, 1.0);
}

Trace DeviceTrace(const Evaluation& evaluation) {
  const TierProblem& problem = evaluation.problem;
  const Occupancy& occupancy = evaluation.occupancy;
  Trace trace = problem.trace;
  for (std::size_t t = 0; t < trace.moments.size(); ++t) {
    trace.moments[t].workspace_bytes +=
        occupancy.device_activations[t] + occupancy.device_constant();
  }
  for (std::size_t i = 0; i < problem.activations.size(); ++i) {
    if (evaluation.decisions.activations[i] != ActivationPlace::kRecompute) continue;
    const ActivationItem& item = problem.activations[i];
    trace.moments[item.consumed].compute_seconds += item.recompute_seconds;
  }
  SetChunks(evaluation, trace);
  SetLink(evaluation, trace);
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

void FillTraffic(const Evaluation& evaluation, TierPlan& plan) {
  const TierProblem& problem = evaluation.problem;
  StepTraffic& traffic = plan.traffic;
  traffic.weights_up = plan.device_plan.h2d_bytes;
  traffic.gradients_down = plan.device_plan.d2h_bytes;
  traffic.activations_up = evaluation.occupancy.host_activations;
  traffic.activations_down = traffic.activations_up;
  std::uint64_t kernel = 0;
  for (ChunkIndex c = 0; c < problem.optimizer.size(); ++c) {
    if (!evaluation.updated(c)) continue;
    const OptimizerItem& item = problem.optimizer[c];
    const OptimizerPlace place = evaluation.decisions.optimizer[c];
    if (place == OptimizerPlace::kStreamed) traffic.state_up += item.state_bytes();
    if (place == OptimizerPlace::kHost) {
      kernel += 2 * item.state_bytes() + item.gradient_bytes;
    }
  }
  traffic.state_down = traffic.state_up;
  traffic.host_memory = kernel + traffic.up() + traffic.down();
}

// The traffic with the fewest bytes of weights that a plan of the device could load.
StepTraffic LeastTraffic(const TierPlan& plan) {
  StepTraffic least = plan.traffic;
  least.weights_up = plan.device_plan.lower_bound_bytes;
  least.host_memory -= plan.traffic.weights_up - least.weights_up;
  return least;
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

ResourceSeconds BusySeconds(const Evaluation& evaluation, const TierPlan& plan,
                            const StepTraffic& traffic) {
  const TierProblem& problem = evaluation.problem;
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
    if (!evaluation.updated(c)) continue;
    busy[static_cast<std::size_t>(Resource::kCpuUpdate)] +=
        CostOfUpdate(machine, problem.optimizer[c], 0, evaluation.decisions.optimizer[c]).cpu;
  }
  return busy;
}

// The updates that are not part of the computation, in the order in which they are done: that of
// the next forward pass. Updates on the device are part of the computation.
std::vector<UpdateJob> UpdateJobs(const Evaluation& evaluation, const TierPlan& plan) {
  const TierProblem& problem = evaluation.problem;
  const std::vector<double> starts = PlannedStarts(plan.device_trace, plan.device_plan);
  std::vector<std::pair<Moment, ChunkIndex>> order;
  for (ChunkIndex c = 0; c < problem.optimizer.size(); ++c) {
    const bool on_device = evaluation.decisions.optimizer[c] == OptimizerPlace::kDevice;
    if (evaluation.updated(c) && !on_device) order.emplace_back(evaluation.first_use[c], c);
  }
  std::sort(order.begin(), order.end());
  std::vector<UpdateJob> jobs;
  jobs.reserve(order.size());
  for (const auto& [first_use, chunk] : order) {
    const OptimizerPlace place = evaluation.decisions.optimizer[chunk];
    const std::uint64_t weight = problem.trace.chunks[chunk].transfer_bytes;
    jobs.push_back({.place = place,
                    .cost = CostOfUpdate(problem.machine, problem.optimizer[chunk], weight, place),
                    .needed_at = starts[first_use]});
  }
  return jobs;
}

void FillSeconds(const Evaluation& evaluation, TierPlan& plan) {
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
  seconds.waits += evaluation.offload_wait_seconds;
  seconds.optimizer = ExposedSeconds(UpdateJobs(evaluation, plan));
  seconds.step = seconds.compute + seconds.head + seconds.waits + seconds.tail + seconds.optimizer;
}

// A step lasts at least as long as its busiest resource is busy.
void FinishSeconds(const Evaluation& evaluation, TierPlan& plan) {
  plan.busy_seconds = BusySeconds(evaluation, plan, plan.traffic);
  const ResourceSeconds least = BusySeconds(evaluation, plan, LeastTraffic(plan));
  plan.step_lower_bound_seconds = *std::max_element(least.begin(), least.end());
  const auto busiest = std::max_element(plan.busy_seconds.begin(), plan.busy_seconds.end());
  plan.bottleneck = static_cast<Resource>(busiest - plan.busy_seconds.begin());
  const double missing = *busiest - plan.seconds.step;
  if (missing <= 0) return;
  plan.seconds.waits += missing;
  plan.seconds.step = *busiest;
}

// The bytes that the arena lacks for these decisions, whenever the loads happen.
std::uint64_t DeviceShortage(const Evaluation& evaluation) {
  const Trace& trace = evaluation.problem.trace;
  const Occupancy& occupancy = evaluation.occupancy;
  std::uint64_t needed = 0;
  for (std::size_t t = 0; t < trace.moments.size(); ++t) {
    needed = std::max(needed, evaluation.used_bytes[t] + occupancy.device_activations[t] +
                                  occupancy.device_constant() + trace.moments[t].workspace_bytes);
  }
  return needed > trace.arena_bytes ? needed - trace.arena_bytes : 0;
}

// Leaves only the fields that say why the plan does not fit.
void Refuse(TierPlan& plan) {
  TierPlan refused;
  refused.decisions = std::move(plan.decisions);
  refused.lacking = plan.lacking;
  refused.tiers = plan.tiers;
  plan = std::move(refused);
}

absl::StatusOr<TierPlan> Evaluate(const Evaluation& evaluation) {
  const TierProblem& problem = evaluation.problem;
  TierPlan plan;
  plan.decisions = evaluation.decisions;
  const std::uint64_t shortage = DeviceShortage(evaluation);
  plan.lacking[static_cast<std::size_t>(Tier::kDevice)] = shortage;
  if (shortage == 0) {
    plan.device_trace = DeviceTrace(evaluation);
    absl::StatusOr<Plan> device = MakePlan(plan.device_trace, problem.planner_options);
    if (!device.ok()) return device.status();
    plan.device_plan = *std::move(device);
    FillTraffic(evaluation, plan);
    FillSeconds(evaluation, plan);
  }
  FillDeviceLedger(problem, evaluation.occupancy, evaluation.used_bytes, plan);
  FillHostLedger(problem, evaluation.occupancy, plan);
  plan.fits = std::all_of(plan.lacking.begin(), plan.lacking.end(),
                          [](std::uint64_t bytes) { return bytes == 0; });
  if (!plan.fits) {
    Refuse(plan);
    return plan;
  }
  FinishSeconds(evaluation, plan);
  const std::vector<OptimizerPlace>& places = plan.decisions.optimizer;
  const auto on_device = [](OptimizerPlace place) { return place == OptimizerPlace::kDevice; };
  plan.everything_on_device = plan.device_plan.everything_fits && plan.traffic.up() == 0 &&
                              plan.traffic.down() == 0 &&
                              std::all_of(places.begin(), places.end(), on_device);
  return plan;
}

}  // namespace

Decisions AllHost(const TierProblem& problem) {
  Decisions decisions;
  decisions.optimizer.assign(problem.optimizer.size(), OptimizerPlace::kHost);
  decisions.activations.assign(problem.activations.size(), ActivationPlace::kKeep);
  return decisions;
}

absl::StatusOr<TierPlan> EvaluateDecisions(const TierProblem& problem, const Decisions& decisions) {
  if (absl::Status status = ValidateTierProblem(problem); !status.ok()) return status;
  if (absl::Status status = CheckDecisions(problem, decisions); !status.ok()) return status;
  return Evaluate(Evaluation(problem, decisions));
}

}  // namespace geminid::planner
