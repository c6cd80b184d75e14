#include "daemon/planner/tiers/ledger.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/pages.h"

namespace geminid::planner {
namespace {

// Bytes of the plan's extents that are alive at each moment. O(residencies + moments).
std::vector<std::uint64_t> ResidentBytes(const Trace& trace, const Plan& plan) {
  const auto n = static_cast<std::int64_t>(trace.moments.size());
  // The vector first holds differences, which may wrap below zero; their running sums do not.
  std::vector<std::uint64_t> bytes(trace.moments.size() + 1, 0);
  for (const Residency& residency : plan.residencies) {
    const std::uint64_t extent =
        base::RoundUp(trace.chunks[residency.chunk].size_bytes, plan.options.alignment_bytes);
    for (std::int64_t cycle = -1; cycle <= 2; ++cycle) {
      const std::int64_t first = std::max(residency.begin, cycle * n);
      const std::int64_t end = std::min(residency.end, (cycle + 1) * n);
      if (first >= end) continue;
      bytes[static_cast<std::size_t>(first - cycle * n)] += extent;
      bytes[static_cast<std::size_t>(end - cycle * n)] -= extent;
    }
  }
  for (std::size_t t = 1; t < bytes.size(); ++t) bytes[t] += bytes[t - 1];
  bytes.pop_back();
  return bytes;
}

std::uint64_t& Of(Owner owner, std::array<std::uint64_t, kNumOwners>& bytes) {
  return bytes[static_cast<std::size_t>(owner)];
}

std::uint64_t Sum(const std::array<std::uint64_t, kNumOwners>& bytes) {
  std::uint64_t sum = 0;
  for (const std::uint64_t owner : bytes) sum += owner;
  return sum;
}

}  // namespace

void FillDeviceLedger(const TierProblem& problem, const Occupancy& occupancy,
                      const std::vector<std::uint64_t>& used_bytes, TierPlan& plan) {
  const bool planned = !plan.device_trace.moments.empty();
  const std::vector<std::uint64_t> gathered =
      planned ? ResidentBytes(plan.device_trace, plan.device_plan) : used_bytes;
  // The constant state includes the home copies of the weights, whose owner is kWeights.
  std::uint64_t home_weights = 0;
  for (std::size_t c = 0; c < problem.optimizer.size(); ++c) {
    if (plan.decisions.optimizer[c] == OptimizerPlace::kDevice) {
      home_weights += problem.optimizer[c].weight_bytes;
    }
  }
  TierBytes& tier = plan.tiers[static_cast<std::size_t>(Tier::kDevice)];
  tier.limit = problem.trace.arena_bytes;
  for (std::size_t t = 0; t < gathered.size(); ++t) {
    std::array<std::uint64_t, kNumOwners> bytes = {};
    Of(Owner::kWeights, bytes) = gathered[t] + home_weights;
    Of(Owner::kOptimizerState, bytes) = occupancy.device_state - home_weights;
    Of(Owner::kGradients, bytes) = occupancy.device_gradients;
    Of(Owner::kActivations, bytes) = occupancy.device_activations[t];
    Of(Owner::kWorkspace, bytes) = problem.trace.moments[t].workspace_bytes;
    Of(Owner::kStaging, bytes) = occupancy.device_staging;
    const std::uint64_t sum = Sum(bytes);
    if (sum <= tier.peak) continue;
    tier.peak = sum;
    tier.by_owner = bytes;
  }
}

void FillHostLedger(const TierProblem& problem, const Occupancy& occupancy, TierPlan& plan) {
  TierBytes& tier = plan.tiers[static_cast<std::size_t>(Tier::kHost)];
  std::uint64_t spare = 0;
  for (std::size_t c = 0; c < problem.optimizer.size(); ++c) {
    const OptimizerPlace place = plan.decisions.optimizer[c];
    if (place == OptimizerPlace::kDevice) continue;
    const OptimizerItem& item = problem.optimizer[c];
    Of(Owner::kWeights, tier.by_owner) += item.weight_bytes;
    Of(Owner::kOptimizerState, tier.by_owner) += item.remainder_bytes + item.moment_bytes;
    if (place == OptimizerPlace::kHost) {
      Of(Owner::kGradients, tier.by_owner) += item.gradient_bytes;
    }
    if (item.parameters > 0) spare = std::max(spare, item.state_bytes());
  }
  Of(Owner::kActivations, tier.by_owner) = occupancy.host_activations;
  Of(Owner::kStaging, tier.by_owner) = spare;
  tier.peak = Sum(tier.by_owner);
  tier.limit = problem.machine.host_bytes;
  if (tier.peak > tier.limit) {
    plan.lacking[static_cast<std::size_t>(Tier::kHost)] = tier.peak - tier.limit;
  }
}

}  // namespace geminid::planner
