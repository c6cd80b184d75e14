#include "daemon/planner/hierarchy/ledger.h"

namespace geminid::planner {

void FillTier(const std::array<std::vector<std::uint64_t>, kNumOwners>& bytes, TierBytes& tier) {
  tier.by_owner = {};
  tier.peak = 0;
  for (std::size_t t = 0; t < bytes[0].size(); ++t) {
    std::uint64_t sum = 0;
    for (const std::vector<std::uint64_t>& owner : bytes) sum += owner[t];
    if (sum <= tier.peak) continue;
    tier.peak = sum;
    for (std::size_t o = 0; o < kNumOwners; ++o) tier.by_owner[o] = bytes[o][t];
  }
}

void FillDeviceLedger(const PreparedProblem& prepared, const Occupancy& occupancy,
                      HierarchyPlan& plan) {
  const HierarchyProblem& problem = prepared.problem;
  const std::size_t moments = problem.trace.moments.size();
  std::array<std::vector<std::uint64_t>, kNumOwners> bytes;
  const auto of = [&](Owner owner) -> std::vector<std::uint64_t>& {
    return bytes[static_cast<std::size_t>(owner)];
  };
  if (plan.device_trace.moments.empty()) {
    for (std::vector<std::uint64_t>& owner : bytes) owner.assign(moments, 0);
    of(Owner::kWeights) = prepared.required_bytes;
  } else {
    bytes = ResidentBytes(plan.device_trace, plan.device_plan,
                          [](ChunkIndex) { return Owner::kWeights; });
  }
  // The constant state includes the home copies of the weights, whose owner is kWeights.
  std::uint64_t home_weights = 0;
  for (std::size_t c = 0; c < problem.optimizer.size(); ++c) {
    if (plan.decisions.optimizer[c] == OptimizerPlace::kDevice) {
      home_weights += problem.optimizer[c].weight_bytes;
    }
  }
  for (std::size_t t = 0; t < moments; ++t) {
    of(Owner::kWeights)[t] += home_weights;
    of(Owner::kOptimizerState)[t] = occupancy.device_state - home_weights;
    of(Owner::kGradients)[t] = occupancy.device_gradients;
    of(Owner::kActivations)[t] = occupancy.device_activations[t];
    of(Owner::kWorkspace)[t] = problem.trace.moments[t].workspace_bytes;
    of(Owner::kStaging)[t] = occupancy.device_staging;
  }
  TierBytes& tier = plan.tiers[static_cast<std::size_t>(Tier::kDevice)];
  tier.limit = problem.trace.arena_bytes;
  FillTier(bytes, tier);
}

}  // namespace geminid::planner
