// Random programs on random arenas: no program hangs, no chunks overlap, no data is lost.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/base/long_tests.h"
#include "tests/client/zero/core/random_program.h"
#include "tests/client/zero/core/simulated_ranks.h"

namespace geminid::zero {
namespace {

uint32_t NumberFrom(const char* variable, uint32_t otherwise) {
  const char* const wanted = std::getenv(variable);
  return wanted == nullptr ? otherwise : static_cast<uint32_t>(std::strtoul(wanted, nullptr, 10));
}

TEST(RandomPrograms, OnAnyArenaThatIsLargeEnough_EndWithTheGradientsOfAllOperators) {
  const uint32_t programs = NumberFrom("GEMINID_PROGRAMS", LongTests() ? 100000 : 20000);
  const uint32_t first = NumberFrom("GEMINID_FIRST_PROGRAM", 1);
  uint32_t exhausted = 0;
  uint64_t plans_with_homes = 0;
  uint64_t followed = 0;
  uint64_t evaluated_by_plan = 0;
  uint64_t to_host = 0;
  uint64_t gathered_again = 0;
  uint64_t within_hosts = 0;
  for (uint32_t seed = first; seed < first + programs; ++seed) {
    const SimulatedProgram program = MakeRandomProgram(seed);
    const SimulationResult result = Simulate(program, seed);
    ASSERT_EQ(result.defect, "") << "program " << seed;
    exhausted += result.exhausted.empty() ? 0 : 1;
    plans_with_homes += result.plans_with_homes;
    followed += result.followed;
    evaluated_by_plan += result.evaluated_by_plan;
    to_host += result.to_host;
    gathered_again += result.gathered_again;
    within_hosts += result.within_hosts;
  }
  RecordProperty("exhausted", static_cast<int>(exhausted));
  // In the tightest arenas only some programs may fail. Held chunks cannot move, so the room for
  // growing workspace or another chunk may exist, but not in one piece.
  EXPECT_LE(exhausted, programs / 60 + 1);
  // Otherwise the test would have shown nothing.
  EXPECT_GE(plans_with_homes, programs / 10);
  EXPECT_GE(followed, programs / 2);
  EXPECT_GE(evaluated_by_plan, programs / 2);
  EXPECT_GE(to_host, programs / 100);
  EXPECT_GE(gathered_again, programs / 100);
  EXPECT_GE(within_hosts, programs / 2);
}

}  // namespace
}  // namespace geminid::zero
