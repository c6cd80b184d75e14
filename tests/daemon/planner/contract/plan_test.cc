#include "daemon/planner/contract/plan.h"

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "daemon/planner/make_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/planner/traces.h"

namespace geminid::planner {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(PlanHash, AnyFieldChanged_HashesDifferently) {
  const Trace trace = ChainTrace(8, 1024, 4, 3, true);
  const absl::StatusOr<Plan> plan = MakePlan(trace, PlannerOptions());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::vector<std::function<void(Plan&)>> changes = {
      [](Plan&) {},
      [](Plan& p) { p.options.policy = Policy::kCpu; },
      [](Plan& p) { p.options.objective = Objective::kBytes; },
      [](Plan& p) { p.options.weights_change_between_iterations = false; },
      [](Plan& p) { p.options.drain_moments += 1; },
      [](Plan& p) { p.options.max_lookahead_moments += 1; },
      [](Plan& p) { p.options.slack_seconds += 1; },
      [](Plan& p) { p.options.alignment_bytes += 1; },
      [](Plan& p) { p.trace_hash += 1; },
      [](Plan& p) { p.everything_fits = true; },
      [](Plan& p) { p.steps[0].loads[0].chunk += 1; },
      [](Plan& p) { p.steps[0].loads[0].device_offset += 1; },
      [](Plan& p) { p.steps[0].loads[0].deadline_moment += 1; },
      [](Plan& p) { p.steps[0].loads[0].order += 1; },
      [](Plan& p) { p.steps[15].drops[0].chunk += 1; },
      [](Plan& p) { p.steps[15].drops[0].becomes_gradient = false; },
      [](Plan& p) { p.steps[15].drops[0].free_moment += 1; },
      [](Plan& p) { p.resident_at_start.push_back({}); },
      [](Plan& p) { p.residencies[0].chunk += 1; },
      [](Plan& p) { p.residencies[0].device_offset += 1; },
      [](Plan& p) { p.residencies[0].begin -= 1; },
      [](Plan& p) { p.residencies[0].first_use += 1; },
      [](Plan& p) { p.residencies[0].last_use += 1; },
      [](Plan& p) { p.residencies[0].end += 1; },
      [](Plan& p) { p.residencies[0].permanent = true; },
      [](Plan& p) { p.h2d_bytes += 1; },
      [](Plan& p) { p.d2h_bytes += 1; },
      [](Plan& p) { p.lower_bound_bytes += 1; },
      [](Plan& p) { p.split_bytes += 1; },
      [](Plan& p) { p.compute_seconds += 1; },
      [](Plan& p) { p.predicted_step_seconds += 1; },
      [](Plan& p) { p.step_lower_bound_seconds += 1; },
      [](Plan& p) { p.stalls.clear(); },
      [](Plan& p) { p.stalls[0].moment += 1; },
      [](Plan& p) { p.stalls[0].seconds += 1; },
      [](Plan& p) { p.stalls[0].unavoidable_seconds += 1; },
      [](Plan& p) { p.stalls[0].cause = StallCause::kLookahead; },
      [](Plan& p) { p.stalls[0].chunk += 1; },
  };
  std::set<std::uint64_t> hashes;
  for (const auto& change : changes) {
    Plan changed = *plan;
    change(changed);
    hashes.insert(PlanHash(changed));
  }
  EXPECT_EQ(hashes.size(), changes.size());
}

TEST(ExplainPlan, TightMemory_SaysWhatMovesAndWhatWaits) {
  const Trace trace = ChainTrace(8, 1 << 20, 4, 3, true);
  const absl::StatusOr<Plan> plan = MakePlan(trace, PlannerOptions());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::string text = ExplainPlan(trace, *plan);
  EXPECT_THAT(text, HasSubstr("The arena has 4.0 MiB."));
  EXPECT_THAT(text, HasSubstr("all 8 chunks take 8.0 MiB"));
  EXPECT_THAT(text, HasSubstr("policy auto"));
  EXPECT_THAT(text, HasSubstr("An iteration loads"));
  EXPECT_THAT(text, HasSubstr("8.0 MiB of gradients down"));
  EXPECT_THAT(text, HasSubstr("at moment 0: chunk 0 cannot be loaded before the optimizer"));
}

TEST(ExplainPlan, EverythingFitsAndNothingChanges_SaysNothingMoves) {
  const Trace trace = ChainTrace(8, 1 << 20, 8, 8, false);
  PlannerOptions options;
  options.weights_change_between_iterations = false;
  const absl::StatusOr<Plan> plan = MakePlan(trace, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::string text = ExplainPlan(trace, *plan);
  EXPECT_THAT(text, HasSubstr("everything fits"));
  EXPECT_THAT(text, HasSubstr("8 chunks never leave the device"));
  EXPECT_THAT(text, HasSubstr("Nothing has to be loaded."));
  EXPECT_THAT(text, Not(HasSubstr("lower bound")));
}

}  // namespace
}  // namespace geminid::planner
