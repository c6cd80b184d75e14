#include "training/forecast/executable.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/status_macros.h"
#include "client/zero/state/state_placement.h"
#include "daemon/planner/hierarchy/occupancy.h"

namespace geminid::forecast {
namespace {

using planner::ActivationPlace;
using planner::ChunkIndex;
using planner::Decisions;
using planner::HierarchyPlan;
using planner::HierarchyProblem;
using planner::OptimizerPlace;
using planner::Tier;

// The chunks in the order of the next forward pass, then those that no operator uses.
std::vector<ChunkIndex> FirstUseOrder(const planner::Trace& trace) {
  std::vector<ChunkIndex> order;
  std::vector<bool> listed(trace.chunks.size(), false);
  const auto add = [&](ChunkIndex chunk) {
    if (!listed[chunk]) order.push_back(chunk);
    listed[chunk] = true;
  };
  for (const planner::MomentTrace& moment : trace.moments) {
    for (const planner::Use& use : moment.uses) add(use.chunk);
  }
  for (ChunkIndex chunk = 0; chunk < trace.chunks.size(); ++chunk) add(chunk);
  return order;
}

class EnginePlanner {
 public:
  explicit EnginePlanner(const HierarchyProblem& problem)
      : problem_(problem), order_(FirstUseOrder(problem.trace)) {
    problem_.machine.disk_read_bytes_per_second = 0;
    problem_.machine.disk_write_bytes_per_second = 0;
    problem_.machine.disk_bytes = 0;
  }

  absl::StatusOr<ExecutablePlan> OnHost() const {
    GEMINID_ASSIGN_OR_RETURN(HierarchyPlan plan, WithStateOnDevice(0));
    return ExecutablePlan{.plan = std::move(plan)};
  }

  absl::StatusOr<ExecutablePlan> Run() {
    GEMINID_ASSIGN_OR_RETURN(HierarchyPlan all, WithStateOnDevice(order_.size()));
    GEMINID_ASSIGN_OR_RETURN(HierarchyPlan some, WithStateOnDevice(0));
    if (!some.fits && !all.fits) return ExecutablePlan{.plan = std::move(some)};
    if (some.fits && !all.everything_on_device) {
      GEMINID_ASSIGN_OR_RETURN(some, MovePart(std::move(some)));
    }
    if (all.fits && (!some.fits || all.seconds.step <= some.seconds.step)) {
      return ExecutablePlan{.plan = std::move(all), .mode = StateMode::kDevice};
    }
    return ExecutablePlan{.plan = std::move(some)};
  }

 private:
  absl::StatusOr<HierarchyPlan> WithStateOnDevice(std::size_t count) const {
    Decisions decisions = planner::AllHost(problem_);
    for (std::size_t i = 0; i < count; ++i) {
      decisions.optimizer[order_[i]] = OptimizerPlace::kDevice;
    }
    for (std::size_t i = 0; i < decisions.activations.size(); ++i) {
      if (!problem_.activations[i].can_recompute) continue;
      decisions.activations[i] = ActivationPlace::kRecompute;
    }
    return planner::EvaluateDecisions(problem_, decisions);
  }

  // How many chunks of the order may have their state on the device.
  std::size_t MostOnDevice() const {
    HierarchyProblem limited = problem_;
    limited.options.gpu_margin_mem_ratio = zero::kAutoStateShare;
    const std::uint64_t limit = planner::DeviceStateLimit(limited);
    std::uint64_t bytes = problem_.options.device_spare_bytes;
    std::size_t count = 0;
    for (; count < order_.size(); ++count) {
      bytes += planner::DeviceStateBytes(problem_.optimizer[order_[count]]);
      if (bytes > limit) break;
    }
    return count;
  }

  // The best of the engine's candidates; `on_host` is the first of them. State that moves to the
  // device still occupies its host memory.
  absl::StatusOr<HierarchyPlan> MovePart(HierarchyPlan on_host) const {
    const planner::TierBytes host = on_host.tier(Tier::kHost);
    HierarchyPlan best = std::move(on_host);
    for (const std::size_t count : zero::CandidateCounts(MostOnDevice())) {
      if (count == 0) continue;
      GEMINID_ASSIGN_OR_RETURN(HierarchyPlan plan, WithStateOnDevice(count));
      if (!plan.fits) break;
      if (zero::IsBetter(CostOf(plan.device_plan), CostOf(best.device_plan))) {
        best = std::move(plan);
      }
    }
    best.tiers[static_cast<std::size_t>(Tier::kHost)] = host;
    return best;
  }

  static zero::StepCost CostOf(const planner::Plan& plan) {
    return {plan.predicted_step_seconds, plan.h2d_bytes + plan.d2h_bytes};
  }

  HierarchyProblem problem_;
  const std::vector<ChunkIndex> order_;
};

}  // namespace

const char* Name(StateMode mode) { return mode == StateMode::kAuto ? "auto" : "device"; }

absl::StatusOr<ExecutablePlan> MakeExecutablePlan(const HierarchyProblem& problem,
                                                  bool state_on_host) {
  EnginePlanner planner(problem);
  return state_on_host ? planner.OnHost() : planner.Run();
}

}  // namespace geminid::forecast
