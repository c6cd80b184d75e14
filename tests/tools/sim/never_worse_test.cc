// The planner against every rival on every trace of the set that `geminid-sim compare` uses.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/planner/make_plan.h"
#include "daemon/planner/placement/extend_drains.h"
#include "daemon/planner/problem/problem.h"
#include "daemon/planner/retention/residency_draft.h"
#include "daemon/planner/timeline/timeline.h"
#include "gtest/gtest.h"
#include "tools/sim/policies/policy.h"
#include "tools/sim/random_trace.h"

namespace geminid::sim {
namespace {

using planner::Trace;

constexpr uint64_t kSeeds = 200;
const char* const kRivals[] = {"cpu",         "static:0.1", "static:0.25", "static:0.5",
                               "static:0.75", "static",     "lru",         "gemini"};
// Beyond rounding; and what a rival whose state repeats only after several iterations may gain by
// it, as a plan repeats after one.
constexpr double kRounding = 1e-9;
constexpr double kLongerPeriod = 0.02;
// A plan that is faster by less than a thousandth is not worth more bytes (planner.cc).
constexpr double kNotWorthwhile = 1e-3;

// The options concern the policy cpu, which is the planner's own.
std::vector<Schedule> RivalsOf(const Trace& trace, const planner::PlannerOptions& options) {
  std::vector<Schedule> schedules;
  for (const char* name : kRivals) {
    const absl::StatusOr<Schedule> schedule = MakeSchedule(trace, *ParsePolicy(name), options);
    if (absl::IsResourceExhausted(schedule.status())) continue;
    EXPECT_TRUE(schedule.ok()) << name << ": " << schedule.status();
    if (schedule.ok()) schedules.push_back(*schedule);
  }
  return schedules;
}

// Per moment, then per use of it: whether it had to be loaded since its last use, and where it is.
struct Followed {
  std::vector<std::vector<bool>> loaded;
  std::vector<std::vector<int64_t>> offsets;
};

Followed Follow(const Trace& trace, const Schedule& schedule) {
  std::vector<bool> loaded(trace.chunks.size(), false);
  std::vector<int64_t> offset(trace.chunks.size(), 0);
  for (const planner::Placement& placement : schedule.resident_at_start) {
    offset[placement.chunk] = static_cast<int64_t>(placement.device_offset);
  }
  Followed followed;
  for (size_t t = 0; t < schedule.moments.size(); ++t) {
    for (const ScheduledLoad& load : schedule.moments[t].loads) {
      loaded[load.chunk] = true;
      offset[load.chunk] = static_cast<int64_t>(load.device_offset);
    }
    followed.loaded.emplace_back();
    followed.offsets.emplace_back();
    for (const planner::Use& use : trace.moments[t % trace.moments.size()].uses) {
      followed.loaded.back().push_back(loaded[use.chunk]);
      followed.offsets.back().push_back(offset[use.chunk]);
      loaded[use.chunk] = false;
    }
  }
  return followed;
}

// What the planner's own timeline says of a rival's schedule: nothing is copied back, gradients
// leave when their space is needed.
double PredictedSeconds(const Trace& trace, const Schedule& schedule) {
  Trace unrolled = trace;
  for (uint64_t i = 1; i < schedule.iterations; ++i) {
    unrolled.moments.insert(unrolled.moments.end(), trace.moments.begin(), trace.moments.end());
  }
  planner::PlannerOptions options = SimulatedPlannerOptions();
  options.drain_moments = 0;
  const absl::StatusOr<planner::Problem> problem = BuildProblem(unrolled, options);
  EXPECT_TRUE(problem.ok()) << problem.status();
  const Followed followed = Follow(trace, schedule);
  const auto place_of = [&](const planner::Item& item, size_t use) {
    const auto t = static_cast<size_t>(item.uses[use].moment);
    const std::vector<planner::Use>& uses = unrolled.moments[t].uses;
    const auto at = std::find_if(uses.begin(), uses.end(), [&](const planner::Use& other) {
      return other.chunk == item.chunk;
    });
    return std::pair(t, static_cast<size_t>(at - uses.begin()));
  };
  planner::Retention retained(problem->gaps.size());
  for (const planner::Item& item : problem->items) {
    for (size_t k = 0; k < item.uses.size(); ++k) {
      const auto [t, u] = place_of(item, (k + 1) % item.uses.size());
      retained[item.first_gap + k] = !followed.loaded[t][u];
    }
  }
  std::vector<planner::ResidencyDraft> drafts = BuildDrafts(*problem, retained);
  for (planner::ResidencyDraft& draft : drafts) {
    const auto [t, u] = place_of(problem->items[draft.item], draft.first_use);
    draft.offset_bytes = followed.offsets[t][u];
  }
  ExtendDrains(options, *problem, drafts);
  return PredictStep(unrolled, *problem, drafts).step_seconds /
         static_cast<double>(schedule.iterations);
}

TEST(Planner, FewestBytesOnAnyTrace_AreNeverMoreThanARivals) {
  planner::PlannerOptions options = SimulatedPlannerOptions();
  options.drain_moments = 0;  // as in the plan for the fewest bytes
  for (int kind = 0; kind < kTraceKinds; ++kind) {
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      const Trace trace = RandomTrace(static_cast<TraceKind>(kind), seed);
      const absl::StatusOr<Schedule> ours =
          MakeSchedule(trace, *ParsePolicy("bytes"), SimulatedPlannerOptions());
      ASSERT_TRUE(ours.ok()) << ours.status();
      const ScheduledBytes least = BytesOf(trace, *ours);
      for (const Schedule& rival : RivalsOf(trace, options)) {
        const ScheduledBytes bytes = BytesOf(trace, rival);
        const double tolerance = rival.iterations > 1 ? kLongerPeriod : kRounding;
        EXPECT_LE(least.up + least.down, (bytes.up + bytes.down) * (1 + tolerance))
            << rival.policy << " on " << Name(static_cast<TraceKind>(kind)) << ":" << seed
            << ", which repeats after " << rival.iterations;
      }
    }
  }
}

TEST(Planner, FastestStepOnAnyTrace_IsNeverSlowerThanARivals) {
  for (int kind = 0; kind < kTraceKinds; ++kind) {
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      const Trace trace = RandomTrace(static_cast<TraceKind>(kind), seed);
      const absl::StatusOr<planner::Plan> plan = MakePlan(trace, SimulatedPlannerOptions());
      ASSERT_TRUE(plan.ok()) << plan.status();
      for (const Schedule& rival : RivalsOf(trace, SimulatedPlannerOptions())) {
        if (rival.policy == "cpu") {
          planner::PlannerOptions cpu = SimulatedPlannerOptions();
          cpu.policy = planner::Policy::kCpu;
          EXPECT_LE(plan->predicted_step_seconds,
                    MakePlan(trace, cpu)->predicted_step_seconds * (1 + kNotWorthwhile))
              << "cpu on " << Name(static_cast<TraceKind>(kind)) << ":" << seed;
          continue;
        }
        EXPECT_LE(plan->predicted_step_seconds,
                  PredictedSeconds(trace, rival) * (1 + kNotWorthwhile))
            << rival.policy << " on " << Name(static_cast<TraceKind>(kind)) << ":" << seed
            << ", which repeats after " << rival.iterations;
      }
    }
  }
}

// The gates above see a plan that is worse.
TEST(Planner, PolicyCpuInItsPlace_WouldMoveMoreAndTakeLonger) {
  bool moves_more = false, takes_longer = false;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Trace trace = RandomTrace(TraceKind::kAdapters, seed);
    planner::PlannerOptions options = SimulatedPlannerOptions();
    options.policy = planner::Policy::kCpu;
    const absl::StatusOr<planner::Plan> plan = MakePlan(trace, options);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const absl::StatusOr<Schedule> lru =
        MakeSchedule(trace, *ParsePolicy("lru"), SimulatedPlannerOptions());
    ASSERT_TRUE(lru.ok()) << lru.status();
    moves_more |= static_cast<double>(plan->h2d_bytes) > BytesOf(trace, *lru).up;
    takes_longer |= plan->predicted_step_seconds > PredictedSeconds(trace, *lru);
  }
  EXPECT_TRUE(moves_more);
  EXPECT_TRUE(takes_longer);
}

}  // namespace
}  // namespace geminid::sim
