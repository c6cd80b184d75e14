#include "daemon/planner/retention/retention.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>

#include "daemon/planner/bound/byte_bound.h"
#include "gtest/gtest.h"
#include "tests/daemon/planner/reference.h"
#include "tests/daemon/planner/traces.h"

namespace geminid::planner {
namespace {

constexpr int kInstances = 3000;

// The retained chunks fit at each moment, in every iteration.
void ExpectFits(const Problem& problem, const std::vector<std::int64_t>& free_bytes,
                const Retention& retained) {
  std::vector<std::int64_t> kept(free_bytes.size(), 0);
  for (std::size_t g = 0; g < retained.size(); ++g) {
    const Gap& gap = problem.gaps[g];
    for (std::int64_t t = gap.first; retained[g] && t <= gap.last; ++t) {
      kept[static_cast<std::size_t>(t % problem.num_moments)] +=
          problem.items[gap.item].extent_bytes;
    }
  }
  for (std::size_t t = 0; t < kept.size(); ++t) ASSERT_LE(kept[t], free_bytes[t]) << t;
}

std::uint64_t DecidedBytes(const Problem& problem) {
  const std::vector<std::int64_t> free_bytes = FreeBytesForGaps(problem);
  const Retention retained = ChooseRetention(problem, free_bytes);
  ExpectFits(problem, free_bytes, retained);
  return LoadBytes(problem, retained);
}

TEST(ChooseRetention, EqualSizesAnyCapacity_EqualsExhaustiveSearchAndBound) {
  std::mt19937_64 random(1);
  int evicting = 0;
  for (int i = 0; i < kInstances; ++i) {
    RandomShape shape{.num_chunks = static_cast<int>(Draw(random, 2, 6)),
                      .num_moments = static_cast<int>(Draw(random, 2, 14)),
                      .min_size_bytes = 3,
                      .max_size_bytes = 3,
                      .max_uses_per_moment = static_cast<int>(Draw(random, 1, 3)),
                      .invalidate = i % 2 == 0};
    const Trace trace = RandomTrace(shape, random);
    const absl::StatusOr<Problem> problem = BuildProblem(trace, TestOptions());
    ASSERT_TRUE(problem.ok()) << problem.status();
    const std::uint64_t least = ExhaustiveLeastBytes(trace, true);
    ASSERT_EQ(DecidedBytes(*problem), least) << "instance " << i;
    ASSERT_EQ(LowerBoundBytes(*problem), least) << "instance " << i;
    if (least > LoadBytes(*problem, RetainAll(*problem))) ++evicting;
  }
  EXPECT_GT(evicting, kInstances / 4);
}

TEST(ChooseRetention, EqualSizesOverTheBoundary_BetweenExhaustiveSearchAndKeepAdjacent) {
  std::mt19937_64 random(2);
  int exact = 0;
  for (int i = 0; i < kInstances; ++i) {
    RandomShape shape{.num_chunks = static_cast<int>(Draw(random, 2, 5)),
                      .num_moments = static_cast<int>(Draw(random, 2, 10)),
                      .max_uses_per_moment = 2,
                      .invalidate = i % 2 == 0,
                      .freeze = i % 3 == 0};
    const Trace trace = RandomTrace(shape, random);
    PlannerOptions options = TestOptions();
    options.weights_change_between_iterations = shape.freeze;
    const absl::StatusOr<Problem> problem = BuildProblem(trace, options);
    ASSERT_TRUE(problem.ok()) << problem.status();
    const std::uint64_t least = ExhaustiveLeastBytes(trace, shape.freeze);
    const std::uint64_t decided = DecidedBytes(*problem);
    ASSERT_GE(decided, least);
    ASSERT_LE(LowerBoundBytes(*problem), least);
    ASSERT_LE(decided, LoadBytes(*problem, RetainAdjacent(*problem)));
    if (decided == least) ++exact;
  }
  std::printf("optimal over the boundary: %d of %d\n", exact, kInstances);
  EXPECT_GE(exact, kInstances * 99 / 100);
}

TEST(ChooseRetention, UnequalSizesOverTheBoundary_FitInEveryIteration) {
  std::mt19937_64 random(4);
  for (int i = 0; i < kInstances; ++i) {
    RandomShape shape{.num_chunks = static_cast<int>(Draw(random, 3, 12)),
                      .num_moments = static_cast<int>(Draw(random, 2, 16)),
                      .min_size_bytes = 1,
                      .max_size_bytes = 9,
                      .max_uses_per_moment = 2};
    const Trace trace = RandomTrace(shape, random);
    PlannerOptions options = TestOptions();
    options.weights_change_between_iterations = false;
    const absl::StatusOr<Problem> problem = BuildProblem(trace, options);
    ASSERT_TRUE(problem.ok()) << problem.status();
    ASSERT_LE(DecidedBytes(*problem), LoadBytes(*problem, RetainAdjacent(*problem)));
    if (HasFailure()) FAIL() << "instance " << i;
  }
}

TEST(ChooseRetention, UnequalSizes_BetweenExhaustiveSearchAndKeepAdjacent) {
  std::mt19937_64 random(3);
  double worst = 1;
  int exact = 0;
  for (int i = 0; i < kInstances; ++i) {
    RandomShape shape{.num_chunks = static_cast<int>(Draw(random, 2, 6)),
                      .num_moments = static_cast<int>(Draw(random, 2, 12)),
                      .min_size_bytes = 1,
                      .max_size_bytes = 9,
                      .max_uses_per_moment = 2,
                      .invalidate = i % 2 == 0,
                      .vary_transfer = i % 3 == 0};
    const Trace trace = RandomTrace(shape, random);
    const absl::StatusOr<Problem> problem = BuildProblem(trace, TestOptions());
    ASSERT_TRUE(problem.ok()) << problem.status();
    const std::uint64_t least = ExhaustiveLeastBytes(trace, true);
    const std::uint64_t decided = DecidedBytes(*problem);
    ASSERT_GE(decided, least);
    ASSERT_LE(LowerBoundBytes(*problem), least) << "instance " << i;
    ASSERT_LE(decided, LoadBytes(*problem, RetainAdjacent(*problem)));
    if (decided == least) ++exact;
    if (least > 0) {
      worst = std::max(worst, static_cast<double>(decided) / static_cast<double>(least));
    }
  }
  std::printf("unequal sizes: optimal %d of %d, worst %.3f times the optimum\n", exact, kInstances,
              worst);
  EXPECT_GE(exact, kInstances * 95 / 100);
}

}  // namespace
}  // namespace geminid::planner
