#include "daemon/core/planner/hierarchy/hierarchy.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "daemon/core/planner/hierarchy/evaluate.h"
#include "daemon/core/planner/hierarchy/price.h"
#include "daemon/core/planner/hierarchy/round.h"
#include "daemon/core/planner/hierarchy/search.h"
#include "daemon/core/planner/hierarchy/update.h"

namespace geminid::planner {
namespace {

// A disk of any speed: only its bytes are asked for.
constexpr double kAnyDiskBytesPerSecond = 1e9;

Decisions AllAt(const Prepared& prepared, OptimizerPlace place) {
  Decisions decisions = AllHost(prepared.problem);
  for (ChunkIndex c = 0; c < decisions.optimizer.size(); ++c) {
    if (place == OptimizerPlace::kDevice || prepared.updated(c)) decisions.optimizer[c] = place;
  }
  return decisions;
}

// As `decisions`, with the activations of `other`.
Decisions WithActivations(Decisions decisions, const Decisions& other) {
  decisions.activations = other.activations;
  return decisions;
}

// Prices that leave as little as possible on the host.
Prices SparingHost(const PriceModel& model) {
  Prices prices;
  prices.segment.assign(model.segments.size(), 0);
  prices.resource[static_cast<std::size_t>(Resource::kCompute)] = 1;
  constexpr double kPriceOfHost = 1;  // second per byte: above anything else
  prices.host = kPriceOfHost;
  return prices;
}

// The resources at their prices, bytes for nothing: room goes to what saves most.
Prices Greedy(const PriceModel& model, const ResourceSeconds& weights) {
  Prices prices;
  prices.segment.assign(model.segments.size(), 0);
  prices.resource = weights;
  return prices;
}

class Planner {
 public:
  explicit Planner(const Prepared& prepared)
      : prepared_(prepared), model_(BuildPriceModel(prepared)), search_(prepared) {}

  absl::StatusOr<HierarchyPlan> Run() {
    if (absl::Status status = TrySimple(); !status.ok()) return status;
    double bound = 0;
    if (!search_.best().everything_on_device || search_.best().seconds.optimizer > 0) {
      if (absl::Status status = TryPriced(&bound); !status.ok()) return status;
      if (absl::Status status = TryTail(); !status.ok()) return status;
      if (absl::Status status = search_.Improve(); !status.ok()) return status;
    } else {
      bound = MaximizeDual(model_, search_.best().seconds.step).bound;
    }
    HierarchyPlan plan = search_.best();
    if (plan.fits) {
      plan.any_decisions_lower_bound_seconds = std::min(bound, plan.step_lower_bound_seconds);
    }
    return plan;
  }

 private:
  absl::Status Try(const Decisions& decisions) { return search_.Try(decisions).status(); }

  absl::Status TryRounded(const Prices& prices, bool allow_streamed) {
    RoundOptions options;
    options.allow_streamed = allow_streamed;
    return Try(Round(prepared_, model_, prices, options));
  }

  // What needs no prices; with activations kept, and as they fit.
  absl::Status TrySimple() {
    const OptimizerPlace places[] = {OptimizerPlace::kDevice, OptimizerPlace::kHost,
                                     OptimizerPlace::kStreamed};
    for (const OptimizerPlace place : places) {
      if (absl::Status status = Try(AllAt(prepared_, place)); !status.ok()) return status;
    }
    if (search_.found() && search_.best().fits) return absl::OkStatus();
    ResourceSeconds even = {};
    even.fill(1.0 / static_cast<double>(kNumResources));
    const Decisions fitted = Round(prepared_, model_, Greedy(model_, even), {});
    for (const OptimizerPlace place : places) {
      const Decisions decisions = WithActivations(AllAt(prepared_, place), fitted);
      if (absl::Status status = Try(decisions); !status.ok()) return status;
    }
    if (absl::Status status = Try(fitted); !status.ok()) return status;
    return TryRounded(SparingHost(model_), /*allow_streamed=*/false);
  }

  absl::Status TryPriced(double* bound) {
    double target = search_.best().fits ? search_.best().seconds.step : 0;
    if (target <= 0) {
      for (const double seconds : model_.base) target = std::max(target, 2 * seconds);
    }
    const DualResult dual = MaximizeDual(model_, target);
    *bound = dual.bound;
    const Prices greedy = Greedy(model_, dual.prices.resource);
    prices_ = dual.prices;
    for (const bool allow_streamed : {false, true}) {
      if (absl::Status status = TryRounded(dual.prices, allow_streamed); !status.ok()) {
        return status;
      }
    }
    return TryRounded(greedy, /*allow_streamed=*/false);
  }

  // If updates are waited for, keeps the state of those that are waited for on the device.
  absl::Status TryTail() {
    if (!search_.best().fits || search_.best().seconds.optimizer <= 0) return absl::OkStatus();
    RoundOptions options;
    options.pinned = DeviceTail(prepared_, search_.best());
    options.allow_streamed = false;
    return Try(Round(prepared_, model_, prices_, options));
  }

  // The chunks whose state the rule of update.h puts on the device.
  static std::vector<std::uint8_t> DeviceTail(const Prepared& prepared, const HierarchyPlan& plan);

  const Prepared& prepared_;
  const PriceModel model_;
  Search search_;
  Prices prices_;
};

std::vector<std::uint8_t> Planner::DeviceTail(const Prepared& prepared, const HierarchyPlan& plan) {
  const bool in_backward = prepared.problem.options.update_during_backward;
  Decisions on_host = plan.decisions;
  on_host.optimizer.assign(on_host.optimizer.size(), OptimizerPlace::kHost);
  std::vector<ChunkIndex> chunks;
  std::vector<UpdateJob> jobs = UpdateJobs(prepared, on_host, plan, &chunks);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    jobs[i].cost.device =
        CostOfUpdate(prepared.problem.machine, prepared.problem.optimizer[chunks[i]], 0,
                     OptimizerPlace::kDevice)
            .device;
  }
  const std::size_t count = in_backward ? SmallestDeviceTail(jobs) : SmallestDeviceHead(jobs);
  std::vector<std::uint8_t> pinned(prepared.problem.optimizer.size(), 0);
  for (std::size_t n = 0; n < count; ++n) {
    pinned[chunks[in_backward ? chunks.size() - 1 - n : n]] = 1;
  }
  return pinned;
}

// Without a disk, or with too small a one: how large a disk would do.
absl::Status AddDiskRemedy(const HierarchyProblem& problem, HierarchyPlan& plan) {
  if (problem.machine.disk_read_bytes_per_second > 0 ||
      plan.lacking[static_cast<std::size_t>(Tier::kDevice)] > 0) {
    return absl::OkStatus();
  }
  HierarchyProblem with_disk = problem;
  with_disk.machine.disk_read_bytes_per_second = kAnyDiskBytesPerSecond;
  with_disk.machine.disk_write_bytes_per_second = kAnyDiskBytesPerSecond;
  const Prepared prepared(with_disk);
  absl::StatusOr<HierarchyPlan> tried = Evaluate(prepared, plan.decisions);
  if (!tried.ok()) return tried.status();
  if (tried->lacking[static_cast<std::size_t>(Tier::kHost)] > 0) return absl::OkStatus();
  const std::uint64_t bytes = tried->lacking[static_cast<std::size_t>(Tier::kDisk)];
  if (bytes > 0) plan.remedies.push_back({Tier::kDisk, bytes});
  return absl::OkStatus();
}

}  // namespace

Decisions AllHost(const HierarchyProblem& problem) {
  Decisions decisions;
  decisions.optimizer.assign(problem.optimizer.size(), OptimizerPlace::kHost);
  decisions.activations.assign(problem.activations.size(), ActivationPlace::kKeep);
  return decisions;
}

absl::StatusOr<HierarchyPlan> MakeHierarchyPlan(const HierarchyProblem& problem) {
  if (absl::Status status = ValidateHierarchyProblem(problem); !status.ok()) return status;
  const Prepared prepared(problem);
  absl::StatusOr<HierarchyPlan> plan = Planner(prepared).Run();
  if (!plan.ok() || plan->fits) return plan;
  if (absl::Status status = AddDiskRemedy(problem, *plan); !status.ok()) return status;
  return plan;
}

absl::StatusOr<HierarchyPlan> EvaluateDecisions(const HierarchyProblem& problem,
                                                const Decisions& decisions) {
  if (absl::Status status = ValidateHierarchyProblem(problem); !status.ok()) return status;
  const Prepared prepared(problem);
  if (absl::Status status = CheckDecisions(prepared, decisions); !status.ok()) return status;
  return Evaluate(prepared, decisions);
}

}  // namespace geminid::planner
