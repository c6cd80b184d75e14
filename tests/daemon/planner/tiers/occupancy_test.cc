#include "daemon/planner/tiers/occupancy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "tests/daemon/planner/tiers/problems.h"

namespace geminid::planner {
namespace {

// Activations of 1 MiB, a link that copies one in `copy_seconds`, and operators of 1 s forward and
// 2 s backward.
TierProblem Offloading(std::uint32_t layers, double copy_seconds) {
  TierProblem problem = Chain(
      {.layers = layers, .activation_bytes = kMiB, .kept_bytes = 0, .forward_seconds = 1}, kGiB);
  problem.machine.latency_seconds = 0;
  problem.machine.up_bytes_per_second = problem.machine.down_bytes_per_second =
      static_cast<double>(kMiB) / copy_seconds;
  return problem;
}

Decisions AllOffloaded(const TierProblem& problem, std::uint32_t places) {
  Decisions decisions = AllHost(problem);
  std::fill(decisions.activations.begin(), decisions.activations.end(), ActivationPlace::kOffload);
  decisions.activation_places = places;
  return decisions;
}

TEST(OffloadWaitSeconds, CopiesShorterThanOperators_WaitForNothing) {
  const TierProblem problem = Offloading(8, 0.5);
  EXPECT_EQ(OffloadWaitSeconds(problem, AllOffloaded(problem, 3)), 0);
}

// With as many places as activations nothing is copied.
TEST(OffloadWaitSeconds, PlacesForAll_WaitForNothing) {
  const TierProblem problem = Offloading(8, 100);
  EXPECT_EQ(OffloadWaitSeconds(problem, AllOffloaded(problem, 8)), 0);
}

// Copies of 10 s, six activations and three places. Down: the three that leave are produced at 1, 2
// and 3 s, and are in host memory at 11, 21 and 31 s. The operators that need their places would
// start at 3, 4 and 5 s and start at 11, 21 and 31 s: forward ends at 32 instead of 6 s.
// Up: the places are free when the last three have been consumed, at 34, 36 and 38 s. The copies
// end at 44, 54 and 64 s. Backward starts these operators then, and ends at 66 instead of 44 s.
TEST(OffloadWaitSeconds, SlowLink_WaitsForEachCopy) {
  const TierProblem problem = Offloading(6, 10);
  EXPECT_DOUBLE_EQ(OffloadWaitSeconds(problem, AllOffloaded(problem, 3)), 66 - (6 * 1 + 6 * 2));
}

TEST(OffloadWaitSeconds, MorePlaces_NeverWaitLonger) {
  const TierProblem problem = Offloading(12, 2.5);
  double last = 1e9;
  for (std::uint32_t places = 3; places <= 12; ++places) {
    const double waited = OffloadWaitSeconds(problem, AllOffloaded(problem, places));
    EXPECT_LE(waited, last) << places;
    last = waited;
  }
  EXPECT_EQ(last, 0);
}

// 100 MiB of arena. The fullest moment has a chunk of 2 MiB, 1 MiB of workspace, and 8 kept
// activations of 4 MiB, or 3 places.
TEST(DeviceStateLimit, IsTheShareOfWhatTheFullestMomentLeaves) {
  const TierProblem problem = Chain({.layers = 8}, 100 * kMiB);
  EXPECT_EQ(DeviceStateLimit(problem, AllHost(problem), 0.5), (100 - 2 - 1 - 32) * kMiB / 2);
  EXPECT_EQ(DeviceStateLimit(problem, AllOffloaded(problem, 3), 0.5),
            (100 - 2 - 1 - 12) * kMiB / 2);
  EXPECT_EQ(DeviceStateLimit(Chain({.layers = 8}, 30 * kMiB), AllHost(problem), 0.5), 0u);
}

}  // namespace
}  // namespace geminid::planner
