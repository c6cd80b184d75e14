#include "tests/daemon/core/simulation.h"

#include "gtest/gtest.h"

namespace geminid::core {
namespace {

constexpr uint32_t kSeeds = 100;
constexpr int kStepsPerSeed = 10'500;  // more than a million in all

// Prints seed and step of a violation: that is all it takes to see it again.
TEST(Simulation, AMillionActions_EveryInvariantHoldsAfterEach) {
  SimulationCounts total;
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    Simulation simulation(seed);
    for (int step = 0; step < kStepsPerSeed; ++step) {
      simulation.Step();
      ASSERT_EQ(simulation.violation(), "") << "seed " << seed << " step " << step;
    }
    simulation.Finish();
    ASSERT_EQ(simulation.violation(), "") << "seed " << seed << " at the end";
    const SimulationCounts& counts = simulation.counts();
    total.tickets += counts.tickets;
    total.evictions += counts.evictions;
    total.cancelled_evictions += counts.cancelled_evictions;
    total.errors += counts.errors;
    total.kills += counts.kills;
    total.kept += counts.kept;
    total.reopened += counts.reopened;
    total.lost += counts.lost;
    total.write_backs += counts.write_backs;
    total.restarts += counts.restarts;
    total.restarts_within += counts.restarts_within;
    total.deaths_at_stores += counts.deaths_at_stores;
    total.deaths_in_restarts += counts.deaths_in_restarts;
    total.arenas_refused += counts.arenas_refused;
    total.sessions_beside += counts.sessions_beside;
  }
  // The world was not an empty one.
  EXPECT_GT(total.tickets, 10'000u);
  EXPECT_GT(total.evictions, 5'000u);
  EXPECT_GT(total.cancelled_evictions, 500u);
  EXPECT_GT(total.errors, 10'000u);
  EXPECT_GT(total.kills, 1'000u);
  EXPECT_GT(total.kept, 200u);
  EXPECT_GT(total.reopened, 50u);
  EXPECT_GT(total.lost, 20u);
  EXPECT_GT(total.write_backs, 100u);
  EXPECT_GT(total.restarts, 5'000u);
  EXPECT_GT(total.restarts_within, 2'000u);
  EXPECT_GE(total.deaths_at_stores, StoreDeath::IsPossible() ? 2'000u : 0u);
  EXPECT_GE(total.deaths_in_restarts, StoreDeath::IsPossible() ? 1'000u : 0u);
  EXPECT_GT(total.arenas_refused, 500u);
  EXPECT_GT(total.sessions_beside, 500u);
  RecordProperty("tickets", static_cast<int>(total.tickets));
  RecordProperty("evictions", static_cast<int>(total.evictions));
  RecordProperty("write_backs", static_cast<int>(total.write_backs));
}

TEST(Simulation, SameSeed_SameWorld) {
  SimulationCounts counts[2];
  for (SimulationCounts& count : counts) {
    Simulation simulation(42);
    for (int step = 0; step < 5000; ++step) simulation.Step();
    ASSERT_EQ(simulation.violation(), "");
    count = simulation.counts();
  }
  EXPECT_EQ(counts[0].tickets, counts[1].tickets);
  EXPECT_EQ(counts[0].evictions, counts[1].evictions);
  EXPECT_EQ(counts[0].errors, counts[1].errors);
}

}  // namespace
}  // namespace geminid::core
