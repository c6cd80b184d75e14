#include "tests/tools/sim/rivals.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "daemon/planner/make_plan.h"
#include "daemon/planner/placement/extend_drains.h"
#include "daemon/planner/problem/problem.h"
#include "daemon/planner/retention/residency_draft.h"
#include "daemon/planner/timeline/timeline.h"
#include "tools/sim/policies/policy.h"

namespace geminid::sim {
namespace {

using planner::Trace;

const char* const kRivals[] = {"cpu",         "static:0.1", "static:0.25", "static:0.5",
                               "static:0.75", "static",     "lru",         "gemini"};

// By moment and use: whether the use needed a load since the last one, and the chunk's offset.
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

}  // namespace

std::vector<Schedule> RivalsOf(const Trace& trace, const planner::PlannerOptions& options) {
  std::vector<Schedule> schedules;
  for (const char* name : kRivals) {
    const absl::StatusOr<Schedule> schedule = MakeSchedule(trace, *ParsePolicy(name), options);
    if (absl::IsResourceExhausted(schedule.status())) continue;
    schedules.push_back(schedule.value());  // value() ends the program if the schedule is malformed
  }
  return schedules;
}

double PredictedSeconds(const Trace& trace, const Schedule& schedule) {
  Trace unrolled = trace;
  for (uint64_t i = 1; i < schedule.iterations; ++i) {
    unrolled.moments.insert(unrolled.moments.end(), trace.moments.begin(), trace.moments.end());
  }
  planner::PlannerOptions options = SimulatedPlannerOptions();
  options.drain_moments = 0;
  const planner::Problem problem = BuildProblem(unrolled, options).value();
  const Followed followed = Follow(trace, schedule);
  const auto place_of = [&](const planner::Item& item, size_t use) {
    const auto t = static_cast<size_t>(item.uses[use].moment);
    const std::vector<planner::Use>& uses = unrolled.moments[t].uses;
    const auto at = std::find_if(uses.begin(), uses.end(), [&](const planner::Use& other) {
      return other.chunk == item.chunk;
    });
    return std::pair(t, static_cast<size_t>(at - uses.begin()));
  };
  planner::Retention retained(problem.gaps.size());
  for (const planner::Item& item : problem.items) {
    for (size_t k = 0; k < item.uses.size(); ++k) {
      const auto [t, u] = place_of(item, (k + 1) % item.uses.size());
      retained[item.first_gap + k] = !followed.loaded[t][u];
    }
  }
  std::vector<planner::ResidencyDraft> drafts = BuildDrafts(problem, retained);
  for (planner::ResidencyDraft& draft : drafts) {
    const auto [t, u] = place_of(problem.items[draft.item], draft.first_use);
    draft.offset_bytes = followed.offsets[t][u];
  }
  ExtendDrains(options, problem, drafts);
  return PredictStep(unrolled, problem, drafts).step_seconds /
         static_cast<double>(schedule.iterations);
}

}  // namespace geminid::sim
