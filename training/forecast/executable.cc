#include "training/forecast/executable.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/status_macros.h"
#include "client/zero/state/state_placement.h"
#include "daemon/planner/tiers/occupancy.h"
#include "training/forecast/offload_room.h"

namespace geminid::forecast {
namespace {

using planner::ActivationPlace;
using planner::ChunkIndex;
using planner::Decisions;
using planner::OptimizerPlace;
using planner::Tier;
using planner::TierPlan;
using planner::TierProblem;

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
  explicit EnginePlanner(const TierProblem& problem)
      : problem_(problem), start_(Start(problem)), order_(FirstUseOrder(problem.trace)) {}

  // Takes fewer places for activations if the device lacks memory for those that the problem
  // allows.
  absl::Status FitPlaces() {
    std::uint32_t& places = start_.activation_places;
    if (places <= kFewestPlaces) return absl::OkStatus();
    GEMINID_ASSIGN_OR_RETURN(const TierPlan plan, WithStateOnDevice(0));
    const std::uint64_t lacking = plan.lacking[static_cast<std::size_t>(Tier::kDevice)];
    const std::uint64_t place_bytes = planner::ActivationPlaceBytes(problem_, start_);
    const std::uint64_t fewer = (lacking + place_bytes - 1) / place_bytes;
    places -= static_cast<std::uint32_t>(std::min<std::uint64_t>(fewer, places - kFewestPlaces));
    return absl::OkStatus();
  }

  absl::StatusOr<ExecutablePlan> OnHost() const {
    GEMINID_ASSIGN_OR_RETURN(TierPlan plan, WithStateOnDevice(0));
    return ExecutablePlan{.plan = std::move(plan)};
  }

  absl::StatusOr<ExecutablePlan> Run() {
    GEMINID_ASSIGN_OR_RETURN(TierPlan all, WithStateOnDevice(order_.size()));
    GEMINID_ASSIGN_OR_RETURN(TierPlan some, WithStateOnDevice(0));
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
  static Decisions Start(const TierProblem& problem) {
    Decisions decisions = planner::AllHost(problem);
    std::uint32_t offloaded = 0;
    for (std::size_t i = 0; i < decisions.activations.size(); ++i) {
      const planner::ActivationItem& item = problem.activations[i];
      if (item.can_recompute) {
        decisions.activations[i] = ActivationPlace::kRecompute;
      } else if (item.can_offload && problem.most_activation_places > 0) {
        decisions.activations[i] = ActivationPlace::kOffload;
        ++offloaded;
      }
    }
    decisions.activation_places = std::min(problem.most_activation_places, offloaded);
    return decisions;
  }

  absl::StatusOr<TierPlan> WithStateOnDevice(std::size_t count) const {
    Decisions decisions = start_;
    for (std::size_t i = 0; i < count; ++i) {
      decisions.optimizer[order_[i]] = OptimizerPlace::kDevice;
    }
    return planner::EvaluateDecisions(problem_, decisions);
  }

  // How many chunks of the order may have their state on the device.
  std::size_t MostOnDevice() const {
    const std::uint64_t limit = planner::DeviceStateLimit(problem_, start_, zero::kAutoStateShare);
    std::uint64_t bytes = problem_.device_spare_bytes;
    std::size_t count = 0;
    for (; count < order_.size(); ++count) {
      bytes += planner::DeviceStateBytes(problem_.optimizer[order_[count]]);
      if (bytes > limit) break;
    }
    return count;
  }

  // The best of the engine's candidates; `on_host` is the first of them. State that moves to the
  // device still occupies its host memory.
  absl::StatusOr<TierPlan> MovePart(TierPlan on_host) const {
    const planner::TierBytes host = on_host.tier(Tier::kHost);
    TierPlan best = std::move(on_host);
    for (const std::size_t count : zero::CandidateCounts(MostOnDevice())) {
      if (count == 0) continue;
      GEMINID_ASSIGN_OR_RETURN(TierPlan plan, WithStateOnDevice(count));
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

  const TierProblem& problem_;
  Decisions start_;  // all state on the host
  const std::vector<ChunkIndex> order_;
};

}  // namespace

const char* Name(StateMode mode) { return mode == StateMode::kAuto ? "auto" : "device"; }

absl::StatusOr<ExecutablePlan> MakeExecutablePlan(const TierProblem& problem, bool state_on_host) {
  EnginePlanner planner(problem);
  GEMINID_RETURN_IF_ERROR(planner.FitPlaces());
  return state_on_host ? planner.OnHost() : planner.Run();
}

}  // namespace geminid::forecast
