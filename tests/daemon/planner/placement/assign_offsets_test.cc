#include "daemon/planner/placement/assign_offsets.h"

#include <algorithm>
#include <cstdio>
#include <random>

#include "daemon/planner/make_plan.h"
#include "daemon/planner/placement/placement_attempt.h"
#include "daemon/planner/timeline/timeline.h"
#include "gtest/gtest.h"
#include "tests/daemon/planner/reference.h"
#include "tests/daemon/planner/traces.h"

namespace geminid::planner {
namespace {

PlannerOptions ByteOptions() {
  PlannerOptions options = TestOptions();
  options.objective = Objective::kBytes;
  return options;
}

TEST(AssignOffsets, EqualSizesInAValley_PlanMovesTheExhaustiveLeast) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 3000; ++i) {
    RandomShape shape{.num_chunks = static_cast<int>(Draw(random, 2, 6)),
                      .num_moments = static_cast<int>(Draw(random, 2, 14)),
                      .min_size_bytes = 4,
                      .max_size_bytes = 4,
                      .max_uses_per_moment = static_cast<int>(Draw(random, 1, 3)),
                      .capacity = Capacity::kValley,
                      .invalidate = i % 2 == 0};
    const Trace trace = RandomTrace(shape, random);
    const absl::StatusOr<Plan> plan = MakePlan(trace, ByteOptions());
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_TRUE(CheckPlan(trace, *plan).ok()) << CheckPlan(trace, *plan);
    ASSERT_EQ(plan->h2d_bytes, ExhaustiveLeastBytes(trace, true)) << "instance " << i;
    std::uint64_t gradient_bytes = 0;  // leave once for each invalidating use, in any plan
    for (const MomentTrace& moment : trace.moments) {
      for (const Use& use : moment.uses) gradient_bytes += use.invalidates ? 4u : 0u;
    }
    ASSERT_EQ(plan->d2h_bytes, gradient_bytes);
    ASSERT_EQ(plan->h2d_bytes, plan->lower_bound_bytes);
    ASSERT_EQ(plan->split_bytes, 0u);
  }
}

TEST(AssignOffsets, HillBetweenTwoLows_SplitsWhatNoFixedOffsetCanHold) {
  // The capacities are 1 2 2 1. Chunk 0 lives from moment 0 to 2, chunk 1 from 1 to 3. Both must
  // lie at offset 0, but not at the same time.
  Trace trace = ChainTrace(2, 1, 1, 1, false);
  trace.arena_bytes = 2;
  trace.moments = {{.uses = {{.chunk = 0}}, .workspace_bytes = 1},
                   {.uses = {{.chunk = 1}}, .workspace_bytes = 0},
                   {.uses = {{.chunk = 0}}, .workspace_bytes = 0},
                   {.uses = {{.chunk = 1}}, .workspace_bytes = 1}};
  const absl::StatusOr<Plan> plan = MakePlan(trace, ByteOptions());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(CheckPlan(trace, *plan).ok()) << CheckPlan(trace, *plan);
  EXPECT_EQ(plan->lower_bound_bytes, 2u);
  EXPECT_EQ(plan->h2d_bytes, 3u);
}

TEST(AssignOffsets, AnyTrace_GivesAValidPlanNoWorseThanCpu) {
  std::mt19937_64 random(12);
  for (int i = 0; i < 3000; ++i) {
    const bool equal = i % 4 == 0;
    RandomShape shape{.num_chunks = static_cast<int>(Draw(random, 1, 40)),
                      .num_moments = static_cast<int>(Draw(random, 1, 80)),
                      .min_size_bytes = equal ? 5u : 1u,
                      .max_size_bytes = equal ? 5u : 20u,
                      .max_uses_per_moment = static_cast<int>(Draw(random, 1, 5)),
                      .capacity = static_cast<Capacity>(Draw(random, 0, 2)),
                      .invalidate = Draw(random, 0, 1) == 0,
                      .freeze = Draw(random, 0, 1) == 0,
                      .vary_transfer = Draw(random, 0, 3) == 0};
    const Trace trace = RandomTrace(shape, random);
    PlannerOptions options = TestOptions();
    options.weights_change_between_iterations = Draw(random, 0, 1) == 0;
    options.drain_moments = static_cast<std::uint32_t>(Draw(random, 0, 4));
    options.max_lookahead_moments = static_cast<std::uint32_t>(Draw(random, 0, 100));
    options.objective = Draw(random, 0, 1) == 0 ? Objective::kBytes : Objective::kStepTime;
    const absl::StatusOr<Plan> plan = MakePlan(trace, options);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_TRUE(CheckPlan(trace, *plan).ok())
        << "instance " << i << ": " << CheckPlan(trace, *plan);
    ASSERT_GE(plan->h2d_bytes, plan->lower_bound_bytes);
    options.policy = Policy::kCpu;
    const absl::StatusOr<Plan> cpu = MakePlan(trace, options);
    ASSERT_TRUE(cpu.ok()) << cpu.status();
    ASSERT_TRUE(CheckPlan(trace, *cpu).ok()) << "instance " << i << ": " << CheckPlan(trace, *cpu);
    if (options.objective == Objective::kBytes) {
      ASSERT_LE(plan->h2d_bytes, cpu->h2d_bytes) << "instance " << i;
    } else {
      ASSERT_LE(plan->predicted_step_seconds, cpu->predicted_step_seconds * 1.001 + 1e-9)
          << "instance " << i;
    }
  }
}

TEST(AssignOffsets, UnequalSizes_StayNearTheBound) {
  std::mt19937_64 random(13);
  double sum = 0;
  double worst = 0;
  constexpr int kTraces = 100;
  for (int i = 0; i < kTraces; ++i) {
    // A chain whose chunks differ by up to a factor of two, like layers.
    Trace trace = ChainTrace(60, 1024, 40, 20, /*trained=*/true);
    for (Chunk& chunk : trace.chunks) {
      chunk.size_bytes = Draw(random, 512, 1024);
      chunk.transfer_bytes = chunk.size_bytes;
    }
    const absl::StatusOr<Plan> plan = MakePlan(trace, ByteOptions());
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_TRUE(CheckPlan(trace, *plan).ok()) << CheckPlan(trace, *plan);
    const double ratio =
        static_cast<double>(plan->h2d_bytes) / static_cast<double>(plan->lower_bound_bytes);
    sum += ratio;
    worst = std::max(worst, ratio);
  }
  std::printf("unequal chain: bytes / bound mean %.4f, worst %.4f\n", sum / kTraces, worst);
  EXPECT_LT(sum / kTraces, 1.05);
}

TEST(AttemptPlacement, SingleUses_AlwaysFindAPlace) {
  std::mt19937_64 random(14);
  for (int i = 0; i < 300; ++i) {
    RandomShape shape{
        .num_chunks = 12, .num_moments = 30, .max_size_bytes = 15, .max_uses_per_moment = 6};
    const absl::StatusOr<Problem> problem = BuildProblem(RandomTrace(shape, random), TestOptions());
    ASSERT_TRUE(problem.ok()) << problem.status();
    if (problem->items.empty()) continue;
    for (const auto prefer : {FreeSpace::Prefer::kHighest, FreeSpace::Prefer::kLowest}) {
      for (const std::int64_t cut : {0, 1, 15, 29}) {
        std::vector<ResidencyDraft> drafts = SingleUses(*problem);
        std::int64_t work = 0;
        EXPECT_TRUE(AttemptPlacement(*problem, prefer, cut, drafts, work).empty());
      }
    }
  }
}

TEST(Isolate, AnyMoment_LeavesOnlyStaysOfThatMomentAlive) {
  std::mt19937_64 random(15);
  for (int i = 0; i < 500; ++i) {
    RandomShape shape{.num_chunks = 8,
                      .num_moments = 12,
                      .max_size_bytes = 3,
                      .max_uses_per_moment = 4,
                      .invalidate = true,
                      .freeze = true};
    PlannerOptions options = TestOptions();
    options.weights_change_between_iterations = i % 2 == 0;
    options.drain_moments = 3;
    const Trace trace = RandomTrace(shape, random);
    const absl::StatusOr<Problem> problem = BuildProblem(trace, options);
    ASSERT_TRUE(problem.ok()) << problem.status();
    std::vector<ResidencyDraft> drafts = BuildDrafts(*problem, RetainAll(*problem));
    ScheduleLoads(trace, options, *problem, /*unlimited_space=*/true, drafts);
    const auto moment = static_cast<std::int64_t>(Draw(random, 0, 11));
    Isolate(*problem, moment, drafts);
    std::size_t uses = 0;
    for (const ResidencyDraft& draft : drafts) {
      uses += draft.num_uses;
      for (std::int64_t t = draft.begin; t < draft.end; ++t) {
        if ((t + 24) % 12 == moment) {
          EXPECT_EQ(draft.end - draft.begin, 1);
        }
      }
    }
    std::size_t expected = 0;
    for (const MomentTrace& m : trace.moments) expected += m.uses.size();
    EXPECT_EQ(uses, expected);
  }
}

}  // namespace
}  // namespace geminid::planner
