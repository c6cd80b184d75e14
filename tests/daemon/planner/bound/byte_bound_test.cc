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

TEST(BuildProblem, DrainsThatDoNotFit_GiveWayOldestFirst) {
  // Backward of chunks 2, 1, 0 at moments 3, 4, 5, two slots: moment 4 has room for the gradient of
  // chunk 2, moment 5 only for that of chunk 1.
  const Trace trace = ChainTrace(3, 1, 2, 2, /*trained=*/true);
  PlannerOptions options = TestOptions();
  options.drain_moments = 2;
  const absl::StatusOr<Problem> problem = BuildProblem(trace, options);
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(problem->required_bytes, (std::vector<std::int64_t>{1, 1, 1, 1, 2, 2}));
  EXPECT_EQ(problem->items[2].uses[1].free_moment, 5);
  EXPECT_EQ(problem->items[1].uses[1].free_moment, 6);
}

}  // namespace
}  // namespace geminid::planner
