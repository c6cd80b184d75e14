#include "tests/simulation/protocol_simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace geminid::simulation {
namespace {

constexpr uint32_t kSeeds = 200;
constexpr int kStepsPerSeed = 5'000;  // a million in all
constexpr int kMostStepsOfAMutant = 100'000;

// Prints seed and step of a violation: that is all it takes to see it again.
TEST(ProtocolSimulation, AMillionActions_EverythingHoldsAfterEach) {
  ProtocolCounts total;
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    ProtocolSimulation simulation(seed);
    for (int step = 0; step < kStepsPerSeed; ++step) {
      simulation.Step();
      ASSERT_EQ(simulation.violation(), "") << "seed " << seed << " step " << step;
    }
    simulation.Finish();
    ASSERT_EQ(simulation.violation(), "") << "seed " << seed << " at the end";
    const ProtocolCounts& counts = simulation.counts();
    total.loads += counts.loads;
    total.loads_refused += counts.loads_refused;
    total.changes += counts.changes;
    total.write_backs += counts.write_backs;
    total.drops += counts.drops;
    total.checks += counts.checks;
    total.allocations += counts.allocations;
    total.allocations_refused += counts.allocations_refused;
    total.deaths += counts.deaths;
    total.deaths_within += counts.deaths_within;
    total.deaths_starting += counts.deaths_starting;
    total.holder_deaths += counts.holder_deaths;
    total.sessions_lost += counts.sessions_lost;
    total.evictions += counts.evictions;
  }
  // The world was not an empty one.
  EXPECT_GT(total.loads, 20'000u);
  EXPECT_GT(total.loads_refused, 20'000u);
  EXPECT_GT(total.evictions, 500u);
  EXPECT_GT(total.changes, 2'000u);
  EXPECT_GT(total.write_backs, 1'000u);
  EXPECT_GT(total.drops, 1'000u);
  EXPECT_GT(total.checks, 10'000u);
  EXPECT_GT(total.allocations, 2'000u);
  EXPECT_GT(total.allocations_refused, 2'000u);
  EXPECT_GT(total.deaths, 8'000u);
  EXPECT_GT(total.deaths_within, 2'000u);
  EXPECT_GT(total.deaths_starting, 500u);
  EXPECT_GT(total.holder_deaths, 1'000u);
  EXPECT_GT(total.sessions_lost, 500u);
  RecordProperty("loads", static_cast<int>(total.loads));
  RecordProperty("evictions", static_cast<int>(total.evictions));
  RecordProperty("deaths", static_cast<int>(total.deaths));
}

TEST(ProtocolSimulation, SameSeed_SameWorld) {
  ProtocolCounts counts[2];
  for (ProtocolCounts& count : counts) {
    ProtocolSimulation simulation(42);
    for (int step = 0; step < kStepsPerSeed; ++step) simulation.Step();
    simulation.Finish();
    ASSERT_EQ(simulation.violation(), "");
    count = simulation.counts();
  }
  EXPECT_EQ(counts[0], counts[1]);
}

// How many actions it took; 0: it was not noticed.
int StepsUntilCaught(Mutant mutant, std::string* how) {
  int steps = 0;
  for (uint32_t seed = 1; steps < kMostStepsOfAMutant; ++seed) {
    ProtocolSimulation simulation(seed, mutant);
    for (int step = 0; step < kStepsPerSeed && simulation.violation().empty(); ++step, ++steps) {
      simulation.Step();
    }
    simulation.Finish();
    *how = simulation.violation();
    if (!how->empty()) return std::max(steps, 1);
  }
  return 0;
}

class ProtocolMutant : public ::testing::Test {
 protected:
  static void ExpectCaught(Mutant mutant, const std::string& by) {
    std::string how;
    const int steps = StepsUntilCaught(mutant, &how);
    EXPECT_GT(steps, 0) << "it was not noticed";
    EXPECT_EQ(how, by);
    RecordProperty("actions", steps);
  }
};

TEST_F(ProtocolMutant, SkippedFence_IsCaught) {
  ExpectCaught(Mutant::kSkippedFence, "a chunk that was held has left its place");
}

TEST_F(ProtocolMutant, FlipBeforeItsData_IsCaught) {
  ExpectCaught(Mutant::kFlipBeforeItsData,
               "a chunk that is held has other bytes than were written");
}

TEST_F(ProtocolMutant, CreditBeforeItsHole_IsCaught) {
  ExpectCaught(Mutant::kCreditBeforeItsHole, "there is more host memory than the node has");
}

TEST_F(ProtocolMutant, LostResend_IsCaught) {
  ExpectCaught(Mutant::kLostResend, "a request was never answered");
}

}  // namespace
}  // namespace geminid::simulation
