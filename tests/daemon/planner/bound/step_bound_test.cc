#include "daemon/planner/bound/step_bound.h"

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>

#include "daemon/planner/make_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/planner/traces.h"

namespace geminid::planner {
namespace {

Plan Planned(const Trace& trace, const PlannerOptions& options) {
  absl::StatusOr<Plan> plan = MakePlan(trace, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

// `length` chunks of one byte, each used once in turn. With `gradient_seconds`, each has a
// gradient.
Trace Stream(int length, int slots, double load_seconds, double compute_seconds,
             double gradient_seconds = 0) {
  Trace trace;
  trace.arena_bytes = static_cast<std::uint64_t>(slots);
  trace.link = {.h2d_bytes_per_second = 1 / load_seconds,
                .d2h_bytes_per_second = gradient_seconds > 0 ? 1 / gradient_seconds : 1,
                .latency_seconds = 0};
  for (int i = 0; i < length; ++i) {
    trace.chunks.push_back({.id = static_cast<std::uint64_t>(i),
                            .size_bytes = 1,
                            .transfer_bytes = 1,
                            .gradient_bytes = gradient_seconds > 0 ? 1u : 0u});
    trace.moments.push_back(
        {.uses = {{.chunk = static_cast<ChunkIndex>(i), .invalidates = gradient_seconds > 0}},
         .compute_seconds = compute_seconds});
  }
  return trace;
}

TEST(LeastStepSeconds, FastLink_IsComputationAndTheFirstLoad) {
  const Plan plan = Planned(Stream(10, 2, 1e-3, 4e-3), TestOptions());
  EXPECT_NEAR(plan.step_lower_bound_seconds, 10 * 4e-3 + 1e-3, 1e-12);
  EXPECT_NEAR(plan.predicted_step_seconds, plan.step_lower_bound_seconds, 1e-12);
  ASSERT_EQ(plan.stalls.size(), 1u);
  EXPECT_NEAR(plan.stalls[0].unavoidable_seconds, 1e-3, 1e-12);
}

TEST(LeastStepSeconds, SlowLink_IsTheLinkAndTheLastMoment) {
  const Plan plan = Planned(Stream(10, 11, 5e-3, 2e-3), TestOptions());
  EXPECT_NEAR(plan.step_lower_bound_seconds, 10 * 5e-3 + 2e-3, 1e-12);
  EXPECT_NEAR(plan.predicted_step_seconds, plan.step_lower_bound_seconds, 1e-12);
}

TEST(LeastStepSeconds, OneSlot_NoLoadOverlapsAndAllWaitingIsUnavoidable) {
  const Plan plan = Planned(Stream(10, 1, 1e-3, 4e-3), TestOptions());
  EXPECT_NEAR(plan.step_lower_bound_seconds, 10 * (4e-3 + 1e-3), 1e-12);
  for (const Stall& stall : plan.stalls) {
    EXPECT_NEAR(stall.unavoidable_seconds, stall.seconds, 1e-12) << stall.moment;
  }
}

TEST(LeastStepSeconds, NoLookahead_WaitingIsAvoidableButForTheFirstLoad) {
  PlannerOptions options = TestOptions();
  options.max_lookahead_moments = 0;
  const Plan plan = Planned(Stream(10, 9, 1e-3, 4e-3), options);
  EXPECT_NEAR(plan.step_lower_bound_seconds, 10 * 4e-3 + 1e-3, 1e-12);
  ASSERT_EQ(plan.stalls.size(), 10u);
  EXPECT_NEAR(plan.stalls[0].unavoidable_seconds, 1e-3, 1e-12);
  EXPECT_EQ(plan.stalls[5].unavoidable_seconds, 0);
}

TEST(LeastStepSeconds, GradientsSlowerThanComputation_AreTheTail) {
  // The first gradient exists after the first load and moment; then the link never rests.
  const Plan plan = Planned(Stream(10, 20, 1e-3, 2e-3, 5e-3), TestOptions());
  EXPECT_NEAR(plan.step_lower_bound_seconds, 1e-3 + 2e-3 + 10 * 5e-3, 1e-12);
  // Nothing needs the gradients' extents, so only the optimizer waits for them.
  EXPECT_NEAR(plan.predicted_step_seconds, plan.step_lower_bound_seconds, 1e-12);
  ASSERT_EQ(plan.stalls.size(), 2u);
  EXPECT_EQ(plan.stalls[1].moment, 10u);
  EXPECT_EQ(plan.stalls[1].cause, StallCause::kDrain);
}

TEST(LeastStepSeconds, SharedChannel_IsTheSumOfBothDirections) {
  Trace trace = Stream(10, 20, 1e-3, 0, 1e-3);
  trace.link.both_directions_share = 0.5;
  EXPECT_NEAR(Planned(trace, TestOptions()).step_lower_bound_seconds, 10 * 2e-3, 1e-12);
}

TEST(LeastStepSeconds, SharedUplink_CountsTheShareOfOneRank) {
  Trace trace = Stream(10, 11, 5e-3, 2e-3);
  trace.link.uplink_bytes_per_second = trace.link.h2d_bytes_per_second;
  trace.link.ranks_per_uplink = 4;
  const Plan plan = Planned(trace, TestOptions());
  EXPECT_NEAR(plan.step_lower_bound_seconds, 10 * 20e-3 + 2e-3, 1e-12);
  EXPECT_NEAR(plan.predicted_step_seconds, plan.step_lower_bound_seconds, 1e-12);
}

TEST(LeastStepSeconds, AnyTrace_IsNeverAboveThePrediction) {
  std::mt19937_64 random(31);
  int tight = 0;
  constexpr int kTraces = 4000;
  for (int i = 0; i < kTraces; ++i) {
    RandomShape shape{.num_chunks = static_cast<int>(Draw(random, 1, 12)),
                      .num_moments = static_cast<int>(Draw(random, 1, 24)),
                      .min_size_bytes = 1,
                      .max_size_bytes = Draw(random, 0, 1) == 0 ? 1u : 9u,
                      .max_uses_per_moment = static_cast<int>(Draw(random, 1, 3)),
                      .capacity = static_cast<Capacity>(Draw(random, 0, 2)),
                      .invalidate = Draw(random, 0, 1) == 0,
                      .freeze = Draw(random, 0, 2) == 0,
                      .vary_transfer = Draw(random, 0, 3) == 0};
    Trace trace = RandomTrace(shape, random);
    trace.link.both_directions_share = 0.5 + 0.1 * static_cast<double>(Draw(random, 0, 5));
    PlannerOptions options = TestOptions();
    options.weights_change_between_iterations = Draw(random, 0, 2) != 0;
    options.drain_moments = static_cast<std::uint32_t>(Draw(random, 0, 3));
    const Plan plan = Planned(trace, options);
    ASSERT_LE(plan.step_lower_bound_seconds, plan.predicted_step_seconds * (1 + 1e-9))
        << "instance " << i << " changing " << options.weights_change_between_iterations;
    double unavoidable = 0;
    for (const Stall& stall : plan.stalls) {
      ASSERT_GE(stall.unavoidable_seconds, 0);
      ASSERT_LE(stall.unavoidable_seconds, stall.seconds);
      unavoidable += stall.unavoidable_seconds;
    }
    ASSERT_LE(plan.compute_seconds + unavoidable, plan.step_lower_bound_seconds * (1 + 1e-9));
    if (plan.predicted_step_seconds <= plan.step_lower_bound_seconds * (1 + 1e-6)) ++tight;
  }
  std::printf("step at its lower bound: %d of %d random traces\n", tight, kTraces);
}

TEST(ExplainPlan, UnavoidableWaiting_IsSaid) {
  const Trace trace = Stream(10, 1, 1e-3, 4e-3);
  EXPECT_THAT(ExplainPlan(trace, Planned(trace, TestOptions())),
              ::testing::HasSubstr("No plan can do it in less than 50.000 ms"));
}

}  // namespace
}  // namespace geminid::planner
