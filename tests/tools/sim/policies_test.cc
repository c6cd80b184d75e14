#include <algorithm>

#include "daemon/planner/make_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/sim/traces.h"
#include "tools/sim/compare.h"
#include "tools/sim/policies/policy.h"
#include "tools/sim/random_trace.h"

namespace geminid::sim {
namespace {

using ::testing::HasSubstr;

Schedule Make(const planner::Trace& trace, const std::string& policy) {
  const absl::StatusOr<PolicySpec> spec = ParsePolicy(policy);
  EXPECT_TRUE(spec.ok()) << spec.status();
  const absl::StatusOr<Schedule> schedule = MakeSchedule(trace, *spec, SimulatedPlannerOptions());
  EXPECT_TRUE(schedule.ok()) << policy << ": " << schedule.status();
  return schedule.ok() ? *schedule : Schedule{};
}

TEST(ParsePolicy, EveryName_ComesBack) {
  for (const char* name : {"auto", "bytes", "cpu", "device", "static", "static:0.25", "static:0",
                           "lru", "gemini", "lru@ideal", "static:0.5@ideal", "gemini@ideal"}) {
    const absl::StatusOr<PolicySpec> policy = ParsePolicy(name);
    ASSERT_TRUE(policy.ok()) << name;
    EXPECT_EQ(Name(*policy), name);
  }
}

TEST(ParsePolicy, UnknownNames_AreRefusedWithWhatThereIs) {
  for (const char* name : {"", "belady", "static:", "static:1.5", "static:-1", "auto@ideal"}) {
    const absl::StatusOr<PolicySpec> policy = ParsePolicy(name);
    ASSERT_FALSE(policy.ok()) << name;
    EXPECT_THAT(std::string(policy.status().message()), HasSubstr("lru")) << name;
  }
}

// A chain of L equal chunks with room for C. LRU and Gemini keep the last C chunks of the forward
// pass. Static pins C - 1 chunks and keeps the one at the turn. So all of them load 2 L - C chunks,
// and there are L gradients.
TEST(Policies, ChainWithConstantRoom_LoadsTwiceTheLengthLessTheRoom) {
  const planner::Trace trace = ChainTrace(12, 5 * kMiB, 1e-3);
  for (const char* policy : {"static", "lru", "lru@ideal", "gemini"}) {
    const ScheduledBytes bytes = BytesOf(trace, Make(trace, policy));
    EXPECT_EQ(bytes.up, (2 * 12 - 5) * kMiB) << policy;
  }
  EXPECT_EQ(BytesOf(trace, Make(trace, "lru")).down, 12 * kMiB);
}

TEST(Policies, Gemini_CopiesBackWhatItEvicts) {
  const planner::Trace trace = ChainTrace(12, 5 * kMiB, 1e-3);
  const ScheduledBytes bytes = BytesOf(trace, Make(trace, "gemini"));
  // There are 12 gradients. In the forward pass 7 chunks leave for room; in the backward pass only
  // gradients do.
  EXPECT_EQ(bytes.down, (12 + 7) * kMiB);
}

TEST(Policies, StaticFraction_PinsThatMuchOrSaysThatItDoesNotFit) {
  const planner::Trace trace = ChainTrace(8, 4 * kMiB, 1e-3);
  EXPECT_EQ(BytesOf(trace, Make(trace, "static:0.25")).up, (8 + 6 - 1) * kMiB);
  const absl::StatusOr<Schedule> half =
      MakeSchedule(trace, *ParsePolicy("static:0.5"), SimulatedPlannerOptions());
  EXPECT_EQ(half.status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(Policies, AnyTraceAndPolicy_GiveAValidSchedule) {
  for (int kind = 0; kind < kTraceKinds; ++kind) {
    for (uint64_t seed = 1; seed <= 40; ++seed) {
      const planner::Trace trace = RandomTrace(static_cast<TraceKind>(kind), seed);
      for (const char* name : {"auto", "cpu", "device", "static", "static:0.25", "lru", "gemini",
                               "static@ideal", "lru@ideal", "gemini@ideal"}) {
        const absl::StatusOr<Schedule> schedule =
            MakeSchedule(trace, *ParsePolicy(name), SimulatedPlannerOptions());
        if (absl::IsResourceExhausted(schedule.status())) continue;
        ASSERT_TRUE(schedule.ok()) << name << ": " << schedule.status();
        const absl::Status valid = CheckSchedule(trace, *schedule);
        EXPECT_TRUE(valid.ok()) << name << " on " << Name(static_cast<TraceKind>(kind)) << ":"
                                << seed << ": " << valid;
      }
    }
  }
}

// The bound holds for any policy's schedule if gradients take no time to leave.
TEST(Policies, NoPolicyOnAnyTrace_BeatsThePlannersLowerBound) {
  planner::PlannerOptions options = SimulatedPlannerOptions();
  options.drain_moments = 0;
  for (int kind = 0; kind < kTraceKinds; ++kind) {
    for (uint64_t seed = 1; seed <= 40; ++seed) {
      const planner::Trace trace = RandomTrace(static_cast<TraceKind>(kind), seed);
      const absl::StatusOr<planner::Plan> plan = MakePlan(trace, options);
      ASSERT_TRUE(plan.ok()) << plan.status();
      for (const char* name : {"static", "lru", "gemini", "static@ideal", "lru@ideal"}) {
        EXPECT_GE(BytesOf(trace, Make(trace, name)).up * (1 + 1e-12),
                  static_cast<double>(plan->lower_bound_bytes))
            << name << " on " << Name(static_cast<TraceKind>(kind)) << ":" << seed;
      }
    }
  }
}

TEST(CheckSchedule, Violations_AreFound) {
  const planner::Trace trace = ChainTrace(4, 3 * kMiB, 1e-3);
  const Schedule good = Make(trace, "lru");
  ASSERT_TRUE(CheckSchedule(trace, good).ok());
  Schedule missing = good;
  missing.moments[0].loads.clear();
  EXPECT_THAT(std::string(CheckSchedule(trace, missing).message()), HasSubstr("is not there"));
  Schedule twice = good;
  twice.moments[1].loads.push_back(twice.moments[0].loads[0]);
  EXPECT_THAT(std::string(CheckSchedule(trace, twice).message()), HasSubstr("twice"));
  Schedule overlap = good;
  overlap.moments[1].loads[0].device_offset = overlap.moments[0].loads[0].device_offset;
  EXPECT_THAT(std::string(CheckSchedule(trace, overlap).message()), HasSubstr("on top"));
  Schedule high = good;
  high.moments[0].loads[0].device_offset = 3 * kMiB;
  EXPECT_THAT(std::string(CheckSchedule(trace, high).message()), HasSubstr("chunks reach"));
  Schedule gone = good;
  gone.moments[0].drops.push_back(3);
  EXPECT_THAT(std::string(CheckSchedule(trace, gone).message()), HasSubstr("is dropped"));
  Schedule stale = good;
  stale.moments.back().drops.clear();
  stale.resident_at_start = {{0, 0}};
  stale.moments[0].loads.clear();
  EXPECT_FALSE(CheckSchedule(trace, stale).ok());
  Schedule short_one = good;
  short_one.moments.pop_back();
  EXPECT_THAT(std::string(CheckSchedule(trace, short_one).message()), HasSubstr("moments"));
}

TEST(RandomTrace, SameSeed_GivesTheSameTraceAndAnotherDoesNot) {
  for (int kind = 0; kind < kTraceKinds; ++kind) {
    const auto one = RandomTrace(static_cast<TraceKind>(kind), 3);
    EXPECT_EQ(TraceHash(one), TraceHash(RandomTrace(static_cast<TraceKind>(kind), 3)));
    EXPECT_NE(TraceHash(one), TraceHash(RandomTrace(static_cast<TraceKind>(kind), 4)));
  }
}

}  // namespace
}  // namespace geminid::sim
