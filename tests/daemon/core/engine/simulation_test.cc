#include "tests/daemon/core/engine/simulation.h"

#include "gtest/gtest.h"
#include "tests/base/long_tests.h"

namespace geminid::core {
namespace {

// Long tests take more than a million steps in all.
constexpr uint32_t kSeeds = 30, kSeedsOfLongTests = 100;
constexpr int kStepsPerSeed = 10'500;

uint32_t Seeds() { return LongTests() ? kSeedsOfLongTests : kSeeds; }

// A bound on a count: `in_long_tests` for the seeds of long tests, and in proportion for fewer
// seeds.
uint64_t AtLeast(uint64_t in_long_tests) { return in_long_tests * Seeds() / kSeedsOfLongTests; }

// Prints the seed and the step of a violation, which are enough to repeat it.
TEST(Simulation, ManyActions_EveryInvariantHoldsAfterEach) {
  SimulationCounts total;
  for (uint32_t seed = 1; seed <= Seeds(); ++seed) {
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
    total.jobs_undone += counts.jobs_undone;
    total.jobs_preempted += counts.jobs_preempted;
    total.job_arenas += counts.job_arenas;
    total.job_yields += counts.job_yields;
    total.restarts += counts.restarts;
    total.restarts_within += counts.restarts_within;
    total.deaths_at_stores += counts.deaths_at_stores;
    total.deaths_in_restarts += counts.deaths_in_restarts;
    total.deaths_in_allocations += counts.deaths_in_allocations;
    total.deaths_in_frees += counts.deaths_in_frees;
    total.deaths_in_ends += counts.deaths_in_ends;
    total.slices += counts.slices;
    total.deaths_after_answers += counts.deaths_after_answers;
    total.died_without_daemon += counts.died_without_daemon;
    total.arenas_refused += counts.arenas_refused;
    total.sessions_beside += counts.sessions_beside;
  }
  // The simulation did exercise the engine.
  EXPECT_GT(total.tickets, AtLeast(10'000));
  EXPECT_GT(total.evictions, AtLeast(5'000));
  EXPECT_GT(total.cancelled_evictions, AtLeast(500));
  EXPECT_GT(total.errors, AtLeast(10'000));
  EXPECT_GT(total.kills, AtLeast(1'000));
  EXPECT_GT(total.kept, AtLeast(200));
  EXPECT_GT(total.reopened, AtLeast(50));
  EXPECT_GT(total.lost, AtLeast(20));
  EXPECT_GT(total.write_backs, AtLeast(100));
  EXPECT_GT(total.jobs_undone, AtLeast(50));
  EXPECT_GT(total.jobs_preempted, AtLeast(30));
  EXPECT_GT(total.job_arenas, AtLeast(100));
  EXPECT_GT(total.job_yields, AtLeast(20));
  EXPECT_GT(total.restarts, AtLeast(5'000));
  EXPECT_GT(total.restarts_within, AtLeast(2'000));
  EXPECT_GE(total.deaths_at_stores, StoreDeath::IsPossible() ? AtLeast(2'000) : 0);
  EXPECT_GE(total.deaths_in_restarts, StoreDeath::IsPossible() ? AtLeast(1'000) : 0);
  EXPECT_GT(total.deaths_in_allocations, AtLeast(500));
  EXPECT_GT(total.deaths_in_frees, AtLeast(500));
  EXPECT_GT(total.deaths_in_ends, AtLeast(500));
  EXPECT_GT(total.slices, AtLeast(2'000));
  EXPECT_GT(total.deaths_after_answers, AtLeast(5'000));
  EXPECT_GT(total.died_without_daemon, AtLeast(1'000));
  EXPECT_GT(total.arenas_refused, AtLeast(500));
  EXPECT_GT(total.sessions_beside, AtLeast(500));
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
