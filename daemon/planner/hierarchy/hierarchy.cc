#include "daemon/planner/hierarchy/hierarchy.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "daemon/planner/hierarchy/decision_search.h"
#include "daemon/planner/hierarchy/evaluate.h"
#include "daemon/planner/hierarchy/price.h"
#include "daemon/planner/hierarchy/round.h"
#include "daemon/planner/hierarchy/update.h"

namespace geminid::planner {
namespace {

// A disk of any speed: only the bytes of its plan are used.
constexpr double kAnyDiskBytesPerSecond = 1e9;

Decisions AllAt(const PreparedProblem& prepared, OptimizerPlace place) {
  Decisions decisions = AllHost(prepared.problem);
  for (ChunkIndex c = 0; c < decisions.optimizer.size(); ++c) {
    if (place == OptimizerPlace::kDevice || prepared.updated(c)) decisions.optimizer[c] = place;
  }
  return decisions;
}

// Returns `decisions` with the activations of `other`.
Decisions WithActivations(Decisions decisions, const Decisions& other) {
  decisions.activations = other.activations;
  return decisions;
}

// Prices that leave as little as possible on the host.
ResourcePrices SparingHost(const PriceModel& model) {
  ResourcePrices prices;
  prices.segment.assign(model.segments.size(), 0);
  prices.resource[static_cast<std::size_t>(Resource::kCompute)] = 1;
  constexpr double kPriceOfHost = 1;  // seconds per byte: above anything else
  prices.host = kPriceOfHost;
  return prices;
}

// Prices for the resources and none for bytes: the items that save most get the space.
ResourcePrices Greedy(const PriceModel& model, const PricedSeconds& weights) {
  ResourcePrices prices;
  prices.segment.assign(model.segments.size(), 0);
  prices.resource = weights;
  return prices;
}

PricedSeconds EvenWeights() {
  PricedSeconds weights = {};
  weights.fill(1.0 / static_cast<double>(kNumPriced));
  return weights;
}

double Largest(const PricedSeconds& seconds) {
  return *std::max_element(seconds.begin(), seconds.end());
}

// The weights of the resources: the gradient of the 32-norm of `seconds`, which sums to 1. Busier
// resources get more weight.
PricedSeconds WeightsOf(const PricedSeconds& seconds) {
  constexpr int kSquarings = 5;
  const double largest = std::max(Largest(seconds), 1e-30);
  PricedSeconds weights = {};
  double sum = 0;
  for (std::size_t r = 0; r < kNumPriced; ++r) {
    weights[r] = seconds[r] / largest;
    for (int k = 0; k < kSquarings; ++k) weights[r] *= weights[r];
    sum += weights[r];
  }
  for (double& weight : weights) weight /= std::max(sum, 1e-30);
  return weights;
}

// If the dual says that only the computation is critical, space has no price, but its distribution
// still matters. These are the prices of the whole arena for a whole step, in steps.
constexpr std::pair<HierarchyPart, double> kPriceLevels[] = {{HierarchyPart::kLowLevel, 1.0 / 16},
                                                             {HierarchyPart::kHighLevel, 1.0 / 2}};

// The prices of the dual, but for every byte at least an even price. The even prices of the whole
// arena sum to `seconds`.
ResourcePrices Level(const PriceModel& model, ResourcePrices prices, double seconds) {
  double arena = 1;
  for (const double free_bytes : model.free_bytes) arena = std::max(arena, free_bytes);
  const double even = seconds / arena / static_cast<double>(model.segments.size());
  for (double& price : prices.segment) price = std::max(price, even);
  return prices;
}

const RoundOptions kNotStreamed = {.allow_streamed = false};

class Planner {
 public:
  explicit Planner(const PreparedProblem& prepared)
      : prepared_(prepared),
        model_(BuildPriceModel(prepared)),
        search_(prepared),
        fitted_(Round(prepared_, model_, Greedy(model_, EvenWeights()), {})) {}

  // `first`: returns the first plan that fits, or the best plan if none fits.
  absl::StatusOr<HierarchyPlan> Run(bool first) {
    if (absl::Status status = TrySimple(); !status.ok()) return status;
    if (first && search_.best().fits) return search_.best();
    const DualResult dual = Bound();
    const HierarchyPlan& simple = search_.best();
    // Running without hooks is given up only for a worthwhile gain.
    const bool enough =
        simple.everything_on_device && simple.seconds.step * (1 - kGainWorthHooks) <= dual.bound;
    if (!enough) {
      if (absl::Status status = TryPriced(dual.prices); !status.ok()) return status;
      if (absl::Status status = TryTail(dual.prices); !status.ok()) return status;
      if (absl::Status status = search_.Improve(dual.bound); !status.ok()) return status;
    }
    HierarchyPlan plan = search_.best();
    if (plan.fits) {
      // A bound for all decisions holds for these.
      plan.any_decisions_lower_bound_seconds = std::min(dual.bound, plan.seconds.step);
      plan.step_lower_bound_seconds =
          std::max(plan.step_lower_bound_seconds, plan.any_decisions_lower_bound_seconds);
    }
    return plan;
  }

 private:
  absl::Status Try(const Decisions& decisions) { return search_.Try(decisions).status(); }
  bool Without(HierarchyPart part) const { return prepared_.without.Has(part); }

  // Tries decisions that need no prices: with all activations kept, and with activations as they
  // fit.
  absl::Status TrySimple() {
    const OptimizerPlace places[] = {OptimizerPlace::kDevice, OptimizerPlace::kHost,
                                     OptimizerPlace::kStreamed};
    for (const OptimizerPlace place : places) {
      if (absl::Status status = Try(AllAt(prepared_, place)); !status.ok()) return status;
    }
    if (search_.best().everything_on_device) return absl::OkStatus();
    if (!Without(HierarchyPart::kFitted)) {
      if (absl::Status status = Try(fitted_.decisions); !status.ok()) return status;
    }
    if (search_.best().fits) return absl::OkStatus();
    for (const OptimizerPlace place : places) {
      const Decisions decisions = WithActivations(AllAt(prepared_, place), fitted_.decisions);
      if (absl::Status status = Try(decisions); !status.ok()) return status;
    }
    return TrySparingHost();
  }

  // Tries decisions that need the least of the host: by price, and with every activation recomputed
  // that can be recomputed.
  absl::Status TrySparingHost() {
    const Decisions sparing = Round(prepared_, model_, SparingHost(model_), kNotStreamed).decisions;
    if (absl::Status status = Try(sparing); !status.ok()) return status;
    Decisions recomputed = AllHost(prepared_.problem);
    for (std::size_t i = 0; i < recomputed.activations.size(); ++i) {
      if (!prepared_.problem.activations[i].can_recompute) continue;
      recomputed.activations[i] = ActivationPlace::kRecompute;
    }
    if (absl::Status status = Try(recomputed); !status.ok()) return status;
    return Try(WithActivations(recomputed, sparing));
  }

  double TargetSeconds() const {
    if (search_.best().fits) return search_.best().seconds.step;
    return 2 * Largest(model_.base);
  }

  // Starts from the resources that are critical for the fitted decisions.
  DualResult Bound() const {
    DualResult dual = MaximizeDual(model_, WeightsOf(fitted_.seconds), TargetSeconds(),
                                   Without(HierarchyPart::kDual) ? 1 : kDualIterations);
    // Every step does the base work, which no decision changes.
    dual.bound = std::max(dual.bound, Largest(model_.base));
    return dual;
  }

  absl::Status TryPriced(const ResourcePrices& prices) {
    for (const auto& [part, level] : kPriceLevels) {
      if (Without(part)) continue;
      const ResourcePrices at = Level(model_, prices, level * TargetSeconds());
      if (absl::Status status = Try(Round(prepared_, model_, at, {}).decisions); !status.ok()) {
        return status;
      }
    }
    return absl::OkStatus();
  }

  // If the step waits for updates, places the state of the chunks that it waits for on the device.
  absl::Status TryTail(const ResourcePrices& prices) {
    if (Without(HierarchyPart::kTail)) return absl::OkStatus();
    if (!search_.best().fits || search_.best().seconds.optimizer <= 0) return absl::OkStatus();
    RoundOptions options;
    options.pinned = DeviceTail(prepared_, search_.best());
    options.allow_streamed = false;
    return Try(Round(prepared_, model_, prices, options).decisions);
  }

  // The chunks whose state the rule of update.h places on the device.
  static std::vector<std::uint8_t> DeviceTail(const PreparedProblem& prepared,
                                              const HierarchyPlan& plan);

  const PreparedProblem& prepared_;
  const PriceModel model_;
  DecisionSearch search_;
  const RoundedDecisions fitted_;  // every resource has the same weight
};

std::vector<std::uint8_t> Planner::DeviceTail(const PreparedProblem& prepared,
                                              const HierarchyPlan& plan) {
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

// For a problem without a disk, or with a disk that is too small: finds the size of a sufficient
// disk.
absl::Status AddDiskRemedy(const HierarchyProblem& problem, HierarchyPlan& plan) {
  if (problem.machine.disk_read_bytes_per_second > 0 ||
      plan.lacking[static_cast<std::size_t>(Tier::kDevice)] > 0) {
    return absl::OkStatus();
  }
  HierarchyProblem with_disk = problem;
  with_disk.machine.disk_read_bytes_per_second = kAnyDiskBytesPerSecond;
  with_disk.machine.disk_write_bytes_per_second = kAnyDiskBytesPerSecond;
  const PreparedProblem prepared(with_disk);
  absl::StatusOr<HierarchyPlan> tried = Evaluate(prepared, plan.decisions);
  if (!tried.ok()) return tried.status();
  if (tried->lacking[static_cast<std::size_t>(Tier::kHost)] > 0) return absl::OkStatus();
  const std::uint64_t bytes = tried->lacking[static_cast<std::size_t>(Tier::kDisk)];
  if (bytes > 0) plan.remedies.push_back({Tier::kDisk, bytes});
  return absl::OkStatus();
}

absl::StatusOr<HierarchyPlan> MakePlanOrRemedies(const HierarchyProblem& problem, bool first,
                                                 const HierarchyPartSet& without) {
  if (absl::Status status = ValidateHierarchyProblem(problem); !status.ok()) return status;
  const PreparedProblem prepared(problem, without);
  absl::StatusOr<HierarchyPlan> plan = Planner(prepared).Run(first);
  if (!plan.ok() || plan->fits) return plan;
  if (absl::Status status = AddDiskRemedy(problem, *plan); !status.ok()) return status;
  return plan;
}

}  // namespace

Decisions AllHost(const HierarchyProblem& problem) {
  Decisions decisions;
  decisions.optimizer.assign(problem.optimizer.size(), OptimizerPlace::kHost);
  decisions.activations.assign(problem.activations.size(), ActivationPlace::kKeep);
  return decisions;
}

absl::StatusOr<HierarchyPlan> MakeHierarchyPlan(const HierarchyProblem& problem,
                                                const HierarchyPartSet& without) {
  return MakePlanOrRemedies(problem, /*first=*/false, without);
}

absl::StatusOr<HierarchyPlan> MakeFirstFittingPlan(const HierarchyProblem& problem) {
  return MakePlanOrRemedies(problem, /*first=*/true, {});
}

absl::StatusOr<HierarchyPlan> EvaluateDecisions(const HierarchyProblem& problem,
                                                const Decisions& decisions) {
  if (absl::Status status = ValidateHierarchyProblem(problem); !status.ok()) return status;
  const PreparedProblem prepared(problem);
  if (absl::Status status = CheckDecisions(prepared, decisions); !status.ok()) return status;
  return Evaluate(prepared, decisions);
}

}  // namespace geminid::planner
