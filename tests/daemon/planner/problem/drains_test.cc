// Compares the drains of gradients with the rule, applied moment by moment.
#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "daemon/planner/problem/problem.h"
#include "gtest/gtest.h"
#include "tests/daemon/planner/traces.h"

namespace geminid::planner {
namespace {

// The problem before any drain is shortened. Each gradient drains as long as the option asks: at
// most to the chunk's next use, and at most to the end of the iteration if the optimizer changes
// the weights then.
Problem AsAsked(Problem problem, const PlannerOptions& options) {
  std::fill(problem.required_bytes.begin(), problem.required_bytes.end(), 0);
  const std::int64_t n = problem.num_moments;
  for (Item& item : problem.items) {
    for (std::size_t k = 0; k < item.uses.size(); ++k) {
      ItemUse& use = item.uses[k];
      problem.required_bytes[static_cast<std::size_t>(use.moment)] += item.extent_bytes;
      if (!use.invalidates) continue;
      std::int64_t end = use.moment + 1 + std::min<std::int64_t>(options.drain_moments, n);
      end = std::min(end, problem.gaps[item.first_gap + k].last + 1);
      if (options.weights_change_between_iterations) end = std::min(end, n);
      use.free_moment = std::max(end, use.moment + 1);
    }
  }
  return problem;
}

struct Drain {
  ItemUse* use;
  std::int64_t bytes;
  std::int64_t iteration_start;
  std::int64_t End() const { return iteration_start + use->free_moment; }
};

// Checks at each moment of two iterations all drains that last, the oldest first.
void DrainMomentByMoment(Problem& problem) {
  const std::int64_t n = problem.num_moments;
  const std::vector<std::int64_t> uses = problem.required_bytes;
  std::vector<Drain> drains;
  for (std::int64_t now = 0; now < 2 * n; ++now) {
    const auto at = static_cast<std::size_t>(now % n);
    std::erase_if(drains, [now](const Drain& drain) { return drain.End() <= now; });
    std::int64_t bytes = 0;
    for (const Drain& drain : drains) bytes += drain.bytes;
    while (!drains.empty() && uses[at] + bytes > problem.capacity_bytes[at]) {
      drains.front().use->free_moment = now - drains.front().iteration_start;
      bytes -= drains.front().bytes;
      drains.erase(drains.begin());
    }
    problem.required_bytes[at] = uses[at] + bytes;
    for (Item& item : problem.items) {
      for (ItemUse& use : item.uses) {
        if (use.moment == now % n && use.free_moment > use.moment + 1) {
          drains.push_back({&use, item.extent_bytes, now - now % n});
        }
      }
    }
  }
}

TEST(Drains, OfRandomTraces_AreAsTheRuleMakesThem) {
  std::mt19937_64 random(7);
  int cut = 0;
  for (int round = 0; round < 300; ++round) {
    const RandomShape shape = {.num_chunks = static_cast<int>(Draw(random, 2, 9)),
                               .num_moments = static_cast<int>(Draw(random, 3, 40)),
                               .max_size_bytes = Draw(random, 1, 5),
                               .capacity = static_cast<Capacity>(Draw(random, 0, 2)),
                               .invalidate = true};
    const Trace trace = RandomTrace(shape, random);
    PlannerOptions options = TestOptions();
    options.drain_moments = static_cast<std::uint32_t>(Draw(random, 1, trace.moments.size()));
    options.weights_change_between_iterations = Draw(random, 0, 1) == 1;
    const absl::StatusOr<Problem> problem = BuildProblem(trace, options);
    ASSERT_TRUE(problem.ok()) << problem.status();
    const Problem asked = AsAsked(*problem, options);
    Problem expected = asked;
    DrainMomentByMoment(expected);
    EXPECT_EQ(problem->required_bytes, expected.required_bytes) << "round " << round;
    for (std::size_t i = 0; i < expected.items.size(); ++i) {
      for (std::size_t k = 0; k < expected.items[i].uses.size(); ++k) {
        const std::int64_t end = expected.items[i].uses[k].free_moment;
        EXPECT_EQ(problem->items[i].uses[k].free_moment, end) << "round " << round;
        cut += asked.items[i].uses[k].free_moment != end ? 1 : 0;
      }
    }
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(cut, 100);
}

// Each drain begins and ends once in each of the two iterations, however many others last
// meanwhile.
TEST(Drains, ThatAllLast_TakeFourStepsEach) {
  constexpr int kLength = 1 << 15;
  const Trace trace = ChainTrace(kLength, 1, kLength + 1, kLength + 1, /*trained=*/true);
  ASSERT_EQ(trace.moments.size(), std::size_t{1} << 16);
  PlannerOptions options = TestOptions();
  options.drain_moments = 1 << 16;
  options.weights_change_between_iterations = true;
  const absl::StatusOr<Problem> problem = BuildProblem(trace, options);
  ASSERT_TRUE(problem.ok()) << problem.status();
  const auto last = problem->required_bytes.back();
  EXPECT_GE(last, kLength - 2) << "of gradients that drain at the last moment";
  EXPECT_GE(problem->drain_steps, 2 * (kLength - 2));
  EXPECT_LE(problem->drain_steps, 4 * kLength);
}

}  // namespace
}  // namespace geminid::planner
