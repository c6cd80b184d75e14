#include "daemon/planner/bound/byte_bound.h"

#include "daemon/planner/make_plan.h"
#include "gtest/gtest.h"
#include "tests/daemon/planner/traces.h"

namespace geminid::planner {
namespace {

TEST(LowerBoundBytes, TrainedChain_ForwardLoadsAndWhatTheTopCannotHold) {
  // L loads in forward, and in backward all but the C chunks held over the top turn.
  const Trace trace = ChainTrace(20, 7, 12, 5, /*trained=*/true);
  const absl::StatusOr<Problem> problem = BuildProblem(trace, TestOptions());
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(LowerBoundBytes(*problem), 7u * (2 * 20 - 5));
}

TEST(LowerBoundBytes, CapacityNotAMultipleOfTheSize_RoundsToWholeChunks) {
  Trace trace = ChainTrace(20, 7, 5, 5, /*trained=*/true);
  trace.arena_bytes += 6;
  const absl::StatusOr<Problem> problem = BuildProblem(trace, TestOptions());
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(LowerBoundBytes(*problem), 7u * (2 * 20 - 5));
}

TEST(LowerBoundBytes, TransferIsAShareOfTheSize_CountsTransfers) {
  Trace trace = ChainTrace(20, 8, 5, 5, /*trained=*/true);
  for (Chunk& chunk : trace.chunks) chunk.transfer_bytes = 2;
  const absl::StatusOr<Problem> problem = BuildProblem(trace, TestOptions());
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(LowerBoundBytes(*problem), 2u * (2 * 20 - 5));
}

// Chunks of 2 and 4 bytes cost half their size. At moment 1 one byte of the first chunk does not
// fit. The relaxation counts half a byte of transfer for it, so any plan transfers a whole byte.
TEST(LowerBoundBytes, PartOfAByte_IsRoundedUp) {
  Trace trace;
  trace.arena_bytes = 6;
  trace.link = {.h2d_bytes_per_second = 1e9, .d2h_bytes_per_second = 1e9, .latency_seconds = 0};
  trace.chunks = {{.id = 0, .size_bytes = 2, .transfer_bytes = 1},
                  {.id = 1, .size_bytes = 4, .transfer_bytes = 2}};
  trace.moments = {{.uses = {{.chunk = 0}}, .compute_seconds = 1e-3},
                   {.uses = {{.chunk = 1}}, .workspace_bytes = 1, .compute_seconds = 1e-3},
                   {.uses = {{.chunk = 0}}, .compute_seconds = 1e-3}};
  PlannerOptions options = TestOptions();
  const absl::StatusOr<Problem> problem = BuildProblem(trace, options);
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(LowerBoundBytes(*problem), 1u + 2u + 1u);
}

TEST(BuildProblem, DrainsThatDoNotFit_GiveWayOldestFirst) {
  // Backward uses chunks 2, 1, 0 at moments 3, 4, 5, and there are two slots. Moment 4 has room for
  // the gradient of chunk 2, and moment 5 only for that of chunk 1.
  const Trace trace = ChainTrace(3, 1, 2, 2, /*trained=*/true);
  PlannerOptions options = TestOptions();
  options.drain_moments = 2;
  const absl::StatusOr<Problem> problem = BuildProblem(trace, options);
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(problem->required_bytes, (std::vector<std::int64_t>{1, 1, 1, 1, 2, 2}));
  EXPECT_EQ(problem->items[2].uses[1].free_moment, 5);
  EXPECT_EQ(problem->items[1].uses[1].free_moment, 6);
}

// With room for all, a gradient stays as long as the option asks, but not past the optimizer.
TEST(BuildProblem, Drains_EndWithTheIterationThatNeedsThem) {
  PlannerOptions options = TestOptions();
  options.drain_moments = 10;
  const absl::StatusOr<Problem> problem =
      BuildProblem(ChainTrace(3, 1, 3, 3, /*trained=*/true), options);
  ASSERT_TRUE(problem.ok()) << problem.status();
  for (const Item& item : problem->items) EXPECT_EQ(item.uses[1].free_moment, 6);
}

// If weights do not change, it also ends before the chunk's next use, in the next iteration.
TEST(BuildProblem, Drains_EndBeforeTheChunksNextUse) {
  PlannerOptions options = TestOptions();
  options.drain_moments = 10;
  options.weights_change_between_iterations = false;
  const absl::StatusOr<Problem> problem =
      BuildProblem(ChainTrace(3, 1, 3, 3, /*trained=*/true), options);
  ASSERT_TRUE(problem.ok()) << problem.status();
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(problem->items[i].uses[1].free_moment, 6 + static_cast<std::int64_t>(i));
  }
}

}  // namespace
}  // namespace geminid::planner
