#include "tests/simulation/protocol_simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/base/long_tests.h"

namespace geminid::simulation {
namespace {

// In long tests a million steps in all.
constexpr uint32_t kSeeds = 60, kSeedsOfLongTests = 200;
constexpr int kStepsPerSeed = 5'000;
constexpr int kMostStepsOfAMutant = 100'000;

uint32_t Seeds() { return LongTests() ? kSeedsOfLongTests : kSeeds; }

// The seeds of long tests see more than `in_long_tests` of something; fewer seeds in proportion.
uint64_t AtLeast(uint64_t in_long_tests) { return in_long_tests * Seeds() / kSeedsOfLongTests; }

// Prints seed and step of a violation: that is all it takes to see it again.
TEST(ProtocolSimulation, ManyActions_EverythingHoldsAfterEach) {
  ProtocolCounts total;
  for (uint32_t seed = 1; seed <= Seeds(); ++seed) {
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
    total.acts_without_daemon += counts.acts_without_daemon;
    total.shortages += counts.shortages;
    total.holder_deaths += counts.holder_deaths;
    total.sessions_lost += counts.sessions_lost;
    total.evictions += counts.evictions;
  }
  // The world was not an empty one.
  EXPECT_GT(total.loads, AtLeast(20'000));
  EXPECT_GT(total.loads_refused, AtLeast(20'000));
  EXPECT_GT(total.evictions, AtLeast(500));
  EXPECT_GT(total.changes, AtLeast(2'000));
  EXPECT_GT(total.write_backs, AtLeast(1'000));
  EXPECT_GT(total.drops, AtLeast(1'000));
  EXPECT_GT(total.checks, AtLeast(10'000));
  EXPECT_GT(total.allocations, AtLeast(2'000));
  EXPECT_GT(total.allocations_refused, AtLeast(2'000));
  EXPECT_GT(total.deaths, AtLeast(8'000));
  EXPECT_GT(total.deaths_within, AtLeast(2'000));
  EXPECT_GT(total.deaths_starting, AtLeast(500));
  EXPECT_GT(total.acts_without_daemon, AtLeast(200'000));
  EXPECT_GT(total.shortages, AtLeast(500));
  EXPECT_GT(total.holder_deaths, AtLeast(1'000));
  EXPECT_GT(total.sessions_lost, AtLeast(500));
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
  static void ExpectCaught(Mutant mutant, const ::testing::Matcher<std::string>& by) {
    std::string how;
    const int steps = StepsUntilCaught(mutant, &how);
    EXPECT_GT(steps, 0) << "it was not noticed";
    EXPECT_THAT(how, by);
    RecordProperty("actions", steps);
  }
};

TEST_F(ProtocolMutant, SkippedFence_IsCaught) {
  ExpectCaught(Mutant::kSkippedFence, "a chunk that was held has left its place");
}

TEST_F(ProtocolMutant, FlipBeforeItsData_IsCaught) {
  ExpectCaught(Mutant::kFlipBeforeItsData,
               ::testing::AnyOf("a chunk that is held has other bytes than were written",
                                "a home has other bytes after its write-back"));
}

TEST_F(ProtocolMutant, CreditBeforeItsHole_IsCaught) {
  ExpectCaught(Mutant::kCreditBeforeItsHole, "there is more host memory than the node has");
}

TEST_F(ProtocolMutant, LostResend_IsCaught) {
  ExpectCaught(Mutant::kLostResend, "a request was never answered");
}

// A daemon died between the answer and its note that the request is done; the client copied and
// said so before the next daemon came.
TEST_F(ProtocolMutant, RepeatedAnswered_IsCaught) {
  ExpectCaught(Mutant::kRepeatedAnswered, "a copy is under way that no client knows");
}

}  // namespace
}  // namespace geminid::simulation
