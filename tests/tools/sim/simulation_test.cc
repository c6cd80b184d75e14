#include "tools/sim/simulation.h"

#include "gtest/gtest.h"
#include "tools/sim/compare.h"

namespace geminid::sim {
namespace {

TEST(CompareOnRandomTraces, EveryPolicy_RunsOnEveryKindOfTrace) {
  const absl::StatusOr<std::vector<Savings>> savings = CompareOnRandomTraces(5, 1);
  ASSERT_TRUE(savings.ok()) << savings.status();
}

}  // namespace
}  // namespace geminid::sim
