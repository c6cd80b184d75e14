#include "daemon/planner/candidates.h"

#include <cmath>
#include <limits>
#include <random>

#include "daemon/planner/bound/byte_bound.h"
#include "daemon/planner/bound/step_bound.h"
#include "gtest/gtest.h"
#include "tests/daemon/planner/traces.h"

namespace geminid::planner {
namespace {

bool IsWorse(const Candidate& a, const Candidate& b) {
  return a.h2d_bytes > b.h2d_bytes ||
         a.prediction.step_seconds > b.prediction.step_seconds * (1 + 1e-3);
}

// The bound and the prediction sum the same durations in another order.
TEST(BestCandidate, CandidateOneUlpBelowTheBound_IsTaken) {
  std::mt19937_64 random(1);
  const RandomShape shape = {.num_chunks = 12,
                             .num_moments = 30,
                             .max_size_bytes = 40,
                             .max_uses_per_moment = 3,
                             .invalidate = true};
  int refused = 0;
  for (int i = 0; i < 200; ++i) {
    const Trace trace = RandomTrace(shape, random);
    const absl::StatusOr<Problem> problem = BuildProblem(trace, TestOptions());
    ASSERT_TRUE(problem.ok()) << problem.status();
    Plan bounds;
    bounds.lower_bound_bytes = LowerBoundBytes(*problem);
    bounds.step_lower_bound_seconds = LeastStepSeconds(
        trace, *problem, EarliestStarts(trace, TestOptions(), *problem), bounds.lower_bound_bytes);
    const Candidate best = BestCandidate(trace, TestOptions(), *problem, bounds);
    const double step = best.prediction.step_seconds;
    bounds.step_lower_bound_seconds = std::nextafter(step, std::numeric_limits<double>::infinity());
    EXPECT_FALSE(IsWorse(BestCandidate(trace, TestOptions(), *problem, bounds), best)) << i;
    // A step below the bound by more than rounding belongs to other drains, and does not count.
    bounds.step_lower_bound_seconds = step * (1 + 1e-6);
    refused += IsWorse(BestCandidate(trace, TestOptions(), *problem, bounds), best) ? 1 : 0;
  }
  EXPECT_GT(refused, 0) << "no trace shows the difference";
}

}  // namespace
}  // namespace geminid::planner
