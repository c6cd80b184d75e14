// Compares the planner's decisions with all possible decisions, under the same cost model.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "daemon/planner/hierarchy/decision_search.h"
#include "daemon/planner/hierarchy/evaluate.h"
#include "daemon/planner/hierarchy/hierarchy.h"
#include "tests/daemon/planner/hierarchy/problems.h"

namespace geminid::planner {
namespace {

// Calls visit(decisions) for all allowed decisions: 3 to the power of the items at most.
template <typename Visitor>
void ForAllDecisions(const PreparedProblem& prepared, const Visitor& visit) {
  Decisions decisions = AllHost(prepared.problem);
  const std::size_t chunks = decisions.optimizer.size();
  const std::size_t items = chunks + decisions.activations.size();
  std::vector<std::uint8_t> digits(items, 0);
  for (;;) {
    if (CheckDecisions(prepared, decisions).ok()) visit(decisions);
    std::size_t i = 0;
    for (; i < items; ++i) {
      digits[i] = static_cast<std::uint8_t>((digits[i] + 1) % 3);
      if (i < chunks) {
        decisions.optimizer[i] = static_cast<OptimizerPlace>(digits[i]);
      } else {
        decisions.activations[i - chunks] = static_cast<ActivationPlace>(digits[i]);
      }
      if (digits[i] != 0) break;
    }
    if (i == items) return;
  }
}

// The shortest step of all decisions that fit; none if none fits.
std::optional<double> BestStep(const HierarchyProblem& problem) {
  const PreparedProblem prepared(problem);
  std::optional<double> best;
  ForAllDecisions(prepared, [&](const Decisions& decisions) {
    const absl::StatusOr<HierarchyPlan> plan = Evaluate(prepared, decisions);
    ASSERT_TRUE(plan.ok()) << plan.status();
    if (plan->fits && (!best || plan->seconds.step < *best)) best = plan->seconds.step;
  });
  return best;
}

// The bounds that docs/planner_hierarchy.md states. Leaving everything on the device may cost
// kGainWorthHooks.
constexpr double kMeanGap = 0.001;
constexpr double kWorstGap = 0.01;

TEST(Brute, RandomProblems_PlanIsNearTheBestOfAll) {
  double sum = 0;
  double worst = 0;
  int compared = 0;
  for (std::uint32_t seed = 1; seed <= 150; ++seed) {
    const HierarchyProblem problem = RandomProblem(3, seed);
    const std::optional<double> best = BestStep(problem);
    const absl::StatusOr<HierarchyPlan> plan = MakeHierarchyPlan(problem);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_EQ(plan->fits, best.has_value()) << "seed " << seed;
    if (!best) continue;
    ++compared;
    const double gap = plan->seconds.step / *best - 1;
    EXPECT_GE(gap, -1e-12) << "seed " << seed;
    EXPECT_LE(plan->any_decisions_lower_bound_seconds, *best * (1 + 1e-9)) << "seed " << seed;
    sum += gap;
    worst = std::max(worst, gap);
  }
  RecordProperty("mean_gap", std::to_string(sum / compared));
  RecordProperty("worst_gap", std::to_string(worst));
  EXPECT_GE(compared, 100);
  EXPECT_LE(sum / compared, kMeanGap);
  EXPECT_LE(worst, kWorstGap);
}

TEST(Brute, EqualItems_PlanIsTheBestOfAll) {
  int compared = 0;
  for (std::uint64_t arena = 9; arena <= 60; arena += 3) {
    for (const double link : {2e9, 10e9, 50e9}) {
      HierarchyProblem problem = Chain({.layers = 3}, arena * kMiB);
      problem.machine.up_bytes_per_second = link;
      problem.machine.down_bytes_per_second = link;
      problem.machine.host_memory_bytes_per_second = 40e9;
      const std::optional<double> best = BestStep(problem);
      const absl::StatusOr<HierarchyPlan> plan = MakeHierarchyPlan(problem);
      ASSERT_TRUE(plan.ok()) << plan.status();
      ASSERT_EQ(plan->fits, best.has_value()) << arena;
      if (!best) continue;
      ++compared;
      // If everything lies on the device, the plan may ignore a gain below the worthwhile one.
      const double allowed = plan->everything_on_device ? 1 / (1 - kGainWorthHooks) : 1 + 1e-12;
      EXPECT_LE(plan->seconds.step, *best * allowed) << arena << " MiB, " << link << " B/s";
    }
  }
  EXPECT_GE(compared, 40);
}

}  // namespace
}  // namespace geminid::planner
