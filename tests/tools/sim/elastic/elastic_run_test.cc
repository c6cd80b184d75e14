// Runs of up to 1,000 ranks that join, leave and die at random.
#include "tools/sim/elastic/elastic_run.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "tests/base/long_tests.h"

namespace geminid::sim {
namespace {

TEST(ElasticRun, OfRanksThatJoinLeaveAndDie_LosesNoStepAndAnswersEveryRequest) {
  ElasticTally tally;
  const uint64_t runs = LongTests() ? 1'000'000 : 20'000;
  for (uint64_t seed = 1; seed <= runs; ++seed) {
    const std::string wrong = ElasticRun(seed).Live(&tally);
    ASSERT_TRUE(wrong.empty()) << "seed " << seed << ": " << wrong;
  }
  // Each is of no use that does not happen.
  EXPECT_EQ(tally.most_ranks, 1000);
  EXPECT_GT(tally.deaths, runs / 4);
  EXPECT_GT(tally.joined, 100 * runs);
  EXPECT_GT(tally.left, 100 * runs);
  EXPECT_GT(tally.done, runs / 2);
  EXPECT_GT(tally.refused, runs / 50);
  EXPECT_GT(tally.shrunk, runs / 50);
  EXPECT_GT(tally.fell_back, runs / 100);
  EXPECT_GT(tally.finished, runs / 3);
}

// Whether a run of some seed finds it, in the words that begin like this.
bool IsFound(ElasticFault fault, const std::string& words) {
  ElasticTally tally;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const std::string wrong = ElasticRun(seed, {}, fault).Live(&tally);
    if (wrong.substr(0, words.size()) == words) return true;
  }
  return false;
}

TEST(ElasticRun, WithAFault_IsNotHeldForGood) {
  EXPECT_TRUE(IsFound(ElasticFault::kImageGoesAtOnce, "step "));
  EXPECT_TRUE(IsFound(ElasticFault::kOldRanksGoOn, "step "));
  EXPECT_TRUE(IsFound(ElasticFault::kRefusalIsForgotten, "nobody says what became"));
}

}  // namespace
}  // namespace geminid::sim
