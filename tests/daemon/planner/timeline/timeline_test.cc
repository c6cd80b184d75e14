#include "daemon/planner/timeline/timeline.h"

#include <algorithm>

#include "daemon/planner/make_plan.h"
#include "daemon/planner/retention/residency_draft.h"
#include "gtest/gtest.h"
#include "tests/daemon/planner/traces.h"

namespace geminid::planner {
namespace {

// `length` chunks of one byte, each used once in turn. One byte takes `load_seconds` to load.
Trace Stream(int length, int slots, double load_seconds, double compute_seconds) {
  Trace trace;
  trace.arena_bytes = static_cast<std::uint64_t>(slots);
  trace.link = {
      .h2d_bytes_per_second = 1 / load_seconds, .d2h_bytes_per_second = 1e9, .latency_seconds = 0};
  for (int i = 0; i < length; ++i) {
    trace.chunks.push_back(
        {.id = static_cast<std::uint64_t>(i), .size_bytes = 1, .transfer_bytes = 1});
    trace.moments.push_back(
        {.uses = {{.chunk = static_cast<ChunkIndex>(i)}}, .compute_seconds = compute_seconds});
  }
  return trace;
}

Plan Planned(const Trace& trace, const PlannerOptions& options) {
  absl::StatusOr<Plan> plan = MakePlan(trace, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(CheckPlan(trace, *plan).ok()) << CheckPlan(trace, *plan);
  return *std::move(plan);
}

TEST(Schedule, TwoSlotsAndAFastLink_OnlyTheFirstLoadIsWaitedFor) {
  const Plan plan = Planned(Stream(10, 2, 1e-3, 4e-3), TestOptions());
  EXPECT_NEAR(plan.predicted_step_seconds, 10 * 4e-3 + 1e-3, 1e-12);
  ASSERT_EQ(plan.stalls.size(), 1u);
  EXPECT_EQ(plan.stalls[0].moment, 0u);
  EXPECT_EQ(plan.stalls[0].cause, StallCause::kIterationBoundary);
  EXPECT_NEAR(plan.stalls[0].seconds, 1e-3, 1e-12);
}

TEST(Schedule, OneSlot_EachLoadWaitsForSpace) {
  const Plan plan = Planned(Stream(10, 1, 1e-3, 4e-3), TestOptions());
  EXPECT_NEAR(plan.predicted_step_seconds, 10 * (4e-3 + 1e-3), 1e-12);
  ASSERT_EQ(plan.stalls.size(), 10u);
  EXPECT_EQ(plan.stalls[5].cause, StallCause::kSpace);
  EXPECT_EQ(plan.stalls[5].chunk, 5u);
}

TEST(Schedule, SlowLink_StepIsTheTimeOfTheLinkAndTheLastMoment) {
  const Plan plan = Planned(Stream(10, 11, 5e-3, 2e-3), TestOptions());
  EXPECT_NEAR(plan.predicted_step_seconds, 10 * 5e-3 + 2e-3, 1e-12);
}

TEST(Schedule, NoLookahead_EachLoadIsIssuedAtItsDeadline) {
  PlannerOptions options = TestOptions();
  options.max_lookahead_moments = 0;
  const Plan plan = Planned(Stream(10, 9, 1e-3, 4e-3), options);
  EXPECT_NEAR(plan.predicted_step_seconds, 10 * (4e-3 + 1e-3), 1e-12);
  ASSERT_EQ(plan.stalls.size(), 10u);
  EXPECT_EQ(plan.stalls[5].cause, StallCause::kLookahead);
  for (std::size_t t = 0; t < plan.steps.size(); ++t) {
    ASSERT_EQ(plan.steps[t].loads.size(), 1u);
    EXPECT_EQ(plan.steps[t].loads[0].deadline_moment, t);
  }
}

TEST(Schedule, FastLink_LoadsAreIssuedAsLateAsTheSlackAllows) {
  PlannerOptions options = TestOptions();
  const Trace trace = Stream(10, 9, 1e-3, 4e-3);
  const Plan late = Planned(trace, options);
  ASSERT_EQ(late.steps[4].loads.size(), 1u);
  EXPECT_EQ(late.steps[4].loads[0].deadline_moment, 5u);
  options.slack_seconds = 4e-3;  // a whole moment earlier
  const Plan early = Planned(trace, options);
  ASSERT_EQ(early.steps[4].loads.size(), 1u);
  EXPECT_EQ(early.steps[4].loads[0].deadline_moment, 6u);
}

TEST(Schedule, LatencyPerTransfer_CountsForEachLoad) {
  Trace trace = Stream(10, 1, 1e-3, 4e-3);
  trace.link.latency_seconds = 2e-3;
  EXPECT_NEAR(Planned(trace, TestOptions()).predicted_step_seconds, 10 * (4e-3 + 3e-3), 1e-12);
}

TEST(Schedule, WeightsThatDoNotChange_AreLoadedAheadOverTheBoundary) {
  PlannerOptions options = TestOptions();
  options.weights_change_between_iterations = false;
  const Plan plan = Planned(Stream(10, 2, 1e-3, 4e-3), options);
  EXPECT_NEAR(plan.predicted_step_seconds, 10 * 4e-3, 1e-12);
  EXPECT_TRUE(plan.stalls.empty());
  ASSERT_FALSE(plan.resident_at_start.empty());
}

TEST(Schedule, GradientsOnASlowLink_AreWaitedFor) {
  // One slot and no time to drain: each gradient of 3 ms must leave before the next load of 1 ms.
  Trace trace = Stream(10, 1, 1e-3, 4e-3);
  trace.link.d2h_bytes_per_second = 1 / 3e-3;
  for (Chunk& chunk : trace.chunks) chunk.gradient_bytes = 1;
  for (MomentTrace& moment : trace.moments) moment.uses[0].invalidates = true;
  const Plan plan = Planned(trace, TestOptions());
  EXPECT_NEAR(plan.predicted_step_seconds, 10 * (1e-3 + 4e-3 + 3e-3), 1e-12);
  EXPECT_EQ(std::count_if(plan.stalls.begin(), plan.stalls.end(),
                          [](const Stall& s) { return s.cause == StallCause::kDrain; }),
            10);
}

TEST(Schedule, ReserveForLoadingAhead_BuysTimeWithBytes) {
  // Three chunks are used in turn, with three other chunks between any two uses. Four slots hold
  // the three and one more. So no slot is left to load ahead while another chunk is in use.
  Trace trace = Stream(33, 4, 1e-3, 4e-3);
  for (std::size_t t = 0; t < trace.moments.size(); t += 4) {
    trace.moments[t].uses[0].chunk = static_cast<ChunkIndex>(t % 12);
  }
  PlannerOptions options = TestOptions();
  options.objective = Objective::kBytes;
  const Plan fewest_bytes = Planned(trace, options);
  options.objective = Objective::kStepTime;
  const Plan fastest = Planned(trace, options);
  EXPECT_EQ(fewest_bytes.h2d_bytes, 3u + 24u);
  // All three are held from moment 8 to 24. There are two waits between any two of their uses, and
  // the first load.
  EXPECT_EQ(fewest_bytes.stalls.size(), 9u);
  EXPECT_GT(fastest.h2d_bytes, fewest_bytes.h2d_bytes);
  EXPECT_EQ(fastest.stalls.size(), 1u);  // the first load of the iteration
}

TEST(Schedule, Loads_AreIssuedByDeadline) {
  const Trace trace = ChainTrace(40, 1 << 20, 12, 6, /*trained=*/true);
  const Plan plan = Planned(trace, TestOptions());
  for (const Step& step : plan.steps) {
    EXPECT_TRUE(std::is_sorted(step.loads.begin(), step.loads.end(),
                               [](const Load& a, const Load& b) { return a.order < b.order; }));
  }
}

// A third of a second is not a binary fraction, so the sums of two equal iterations round
// differently.
TEST(PredictStep, IterationsThatDifferOnlyByRounding_EndAfterTwo) {
  const Trace trace = Stream(7, 2, 0.1 / 3, 1.0 / 3);
  const absl::StatusOr<Problem> problem = BuildProblem(trace, TestOptions());
  ASSERT_TRUE(problem.ok()) << problem.status();
  std::vector<ResidencyDraft> drafts = BuildDrafts(*problem, RetainAdjacent(*problem));
  ScheduleLoads(trace, TestOptions(), *problem, /*unlimited_space=*/false, drafts);
  EXPECT_EQ(PredictStep(trace, *problem, drafts).iterations, 2);
}

}  // namespace
}  // namespace geminid::planner
