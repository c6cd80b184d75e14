#include "tools/sim/policies/policy.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "daemon/planner/demand/demand_cache.h"
#include "daemon/planner/make_plan.h"
#include "daemon/planner/problem/problem.h"
#include "proto/shm/lease.h"

namespace geminid::sim {
namespace {

using planner::CacheRule;
using planner::DemandCache;
using planner::PlannerOptions;
using planner::Trace;

// The most iterations that may pass until a state repeats.
constexpr size_t kMaxIterations = 32;

constexpr char kStaticPrefix[] = "static:";
constexpr char kIdealSuffix[] = "@ideal";

bool IsRival(PolicyKind kind) {
  return kind == PolicyKind::kStatic || kind == PolicyKind::kLru || kind == PolicyKind::kGemini;
}

absl::StatusOr<Schedule> Planned(const Trace& trace, planner::Policy policy,
                                 planner::PlannerOptions options) {
  options.policy = policy;
  absl::StatusOr<planner::Plan> plan = MakePlan(trace, options);
  if (!plan.ok()) return plan.status();
  return FromPlan(*plan);
}

// Rivals do not model gradients that drain: the space of a gradient is free at once.
absl::StatusOr<planner::Problem> RivalProblem(const Trace& trace) {
  PlannerOptions options = SimulatedPlannerOptions();
  options.drain_moments = 0;
  return BuildProblem(trace, options);
}

// The items pinned in order of first use: as many as fit, or until `fraction` of the model is.
std::vector<bool> PinnedItems(const planner::Problem& problem, double fraction) {
  if (fraction > 1) return PinAllThatFit(problem);
  int64_t model_bytes = 0;
  for (const planner::Item& item : problem.items) model_bytes += item.extent_bytes;
  const double wanted = fraction * static_cast<double>(model_bytes);
  std::vector<bool> pinned(problem.items.size(), false);
  int64_t pinned_bytes = 0;
  for (size_t i = 0; i < pinned.size() && static_cast<double>(pinned_bytes) < wanted; ++i) {
    pinned[i] = true;
    pinned_bytes += problem.items[i].extent_bytes;
  }
  return pinned;
}

void Append(const planner::Problem& problem, const DemandCache& cache, bool copies_back,
            Schedule& schedule) {
  for (const planner::CacheMoment& moment : cache.moments()) {
    ScheduledMoment scheduled;
    for (const uint32_t i : moment.evicted) {
      scheduled.evictions.push_back({problem.items[i].chunk, copies_back});
    }
    for (const auto& [i, offset] : moment.loaded) {
      scheduled.loads.push_back(
          {problem.items[i].chunk, static_cast<uint64_t>(offset), /*prefetch=*/false});
    }
    for (const uint32_t i : moment.dropped) scheduled.drops.push_back(problem.items[i].chunk);
    schedule.moments.push_back(std::move(scheduled));
  }
}

// Runs the cache until its state repeats, and returns what repeats; if that takes too long, the
// cache is emptied at the end of each iteration.
absl::StatusOr<Schedule> OnDemand(const Trace& trace, const planner::Problem& problem,
                                  const CacheRule& rule, bool copies_back) {
  DemandCache cache(trace, problem, rule);
  Schedule schedule;
  schedule.counts_bytes_only = rule.memory == CacheRule::Memory::kIdeal;
  schedule.address_space_bytes = static_cast<uint64_t>(cache.address_space_bytes());
  const auto run = [&](const DemandCache::State& start) {
    if (!cache.RunIteration(start, std::numeric_limits<int64_t>::max())) return false;
    Append(problem, cache, copies_back, schedule);
    return true;
  };
  std::vector<DemandCache::State> states = {{}};
  const size_t n = trace.moments.size();
  while (states.size() <= kMaxIterations) {
    if (!run(states.back())) {
      return absl::ResourceExhaustedError(
          "pinned chunks leave too little room for the chunks of some operator; pin less");
    }
    const auto same = std::find(states.begin(), states.end(), cache.end());
    if (same == states.end()) {
      states.push_back(cache.end());
      continue;
    }
    const auto first = static_cast<size_t>(same - states.begin());
    schedule.iterations = states.size() - first;
    schedule.moments.erase(schedule.moments.begin(),
                           schedule.moments.begin() + static_cast<std::ptrdiff_t>(first * n));
    for (const auto& [i, offset] : *same) {
      schedule.resident_at_start.push_back({problem.items[i].chunk, static_cast<uint64_t>(offset)});
    }
    return schedule;
  }
  schedule.moments.resize(n);  // of the first iteration, which began with nothing
  run({});
  schedule.moments.erase(schedule.moments.begin(),
                         schedule.moments.begin() + static_cast<std::ptrdiff_t>(n));
  for (const auto& [i, offset] : cache.end()) {
    schedule.moments.back().drops.push_back(problem.items[i].chunk);
  }
  return schedule;
}

absl::StatusOr<Schedule> Rival(const Trace& trace, const PolicySpec& policy) {
  const absl::StatusOr<planner::Problem> problem = RivalProblem(trace);
  if (!problem.ok()) return problem.status();
  CacheRule rule{.memory = policy.memory};
  switch (policy.kind) {
    case PolicyKind::kStatic:
      rule.pinned = PinnedItems(*problem, policy.fraction);
      rule.drops_after_use = true;
      break;
    case PolicyKind::kGemini:
      // AutoPlacementPolicy in its steady state: victims by the next use that warm-up recorded,
      // farthest first, looking to the end of the iteration only; they are moved to the host.
      rule.eviction = CacheRule::EvictionRule::kLastNeeded;
      break;
    default:
      rule.eviction = CacheRule::EvictionRule::kLeastRecent;
  }
  return OnDemand(trace, *problem, rule, /*copies_back=*/policy.kind == PolicyKind::kGemini);
}

absl::StatusOr<Schedule> Make(const Trace& trace, const PolicySpec& policy,
                              const planner::PlannerOptions& options) {
  switch (policy.kind) {
    case PolicyKind::kAuto:
      return Planned(trace, planner::Policy::kAuto, options);
    case PolicyKind::kBytes: {
      planner::PlannerOptions least_bytes = options;
      least_bytes.objective = planner::Objective::kBytes;
      least_bytes.drain_moments = 0;  // as for the rivals
      return Planned(trace, planner::Policy::kAuto, least_bytes);
    }
    case PolicyKind::kCpu:
      return Planned(trace, planner::Policy::kCpu, options);
    case PolicyKind::kDevice:
      return Planned(trace, planner::Policy::kDevice, options);
    case PolicyKind::kStatic:
    case PolicyKind::kLru:
    case PolicyKind::kGemini:
      return Rival(trace, policy);
  }
  return absl::InvalidArgumentError("the policy is unknown");
}

}  // namespace

absl::StatusOr<PolicySpec> ParsePolicy(const std::string& text) {
  PolicySpec parsed;
  std::string name = text;
  if (name.ends_with(kIdealSuffix)) {
    name.resize(name.size() - (sizeof(kIdealSuffix) - 1));
    parsed.memory = Memory::kIdeal;
  }
  if (name.starts_with(kStaticPrefix) &&
      absl::SimpleAtod(name.substr(sizeof(kStaticPrefix) - 1), &parsed.fraction) &&
      parsed.fraction >= 0 && parsed.fraction <= 1) {
    parsed.kind = PolicyKind::kStatic;
    return parsed;
  }
  for (const PolicySpec& policy : AllPolicies()) {
    if (name != Name(policy)) continue;
    parsed.kind = policy.kind;
    parsed.fraction = policy.fraction;
    if (parsed.memory == Memory::kArena || IsRival(policy.kind)) return parsed;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is not a policy; it must be one of: auto, bytes, cpu, device, lru, gemini, ",
      "static, static:FRACTION with a fraction from 0 to 1; or one of the last four ",
      "followed by ", kIdealSuffix));
}

std::string Name(const PolicySpec& policy) {
  const char* suffix = policy.memory == Memory::kIdeal ? kIdealSuffix : "";
  switch (policy.kind) {
    case PolicyKind::kAuto:
      return "auto";
    case PolicyKind::kBytes:
      return "bytes";
    case PolicyKind::kCpu:
      return "cpu";
    case PolicyKind::kDevice:
      return "device";
    case PolicyKind::kStatic:
      return policy.fraction > 1 ? absl::StrCat("static", suffix)
                                 : absl::StrCat(kStaticPrefix, policy.fraction, suffix);
    case PolicyKind::kLru:
      return absl::StrCat("lru", suffix);
    case PolicyKind::kGemini:
      return absl::StrCat("gemini", suffix);
  }
  return "unknown";
}

std::vector<PolicySpec> AllPolicies() {
  return {{PolicyKind::kAuto},   {PolicyKind::kBytes},        {PolicyKind::kCpu},
          {PolicyKind::kDevice}, {PolicyKind::kStatic, 0.25}, {PolicyKind::kStatic, 0.5},
          {PolicyKind::kStatic}, {PolicyKind::kLru},          {PolicyKind::kGemini}};
}

planner::PlannerOptions SimulatedPlannerOptions() {
  planner::PlannerOptions options;
  options.alignment_bytes = shm::kSlotBytes;
  return options;
}

absl::StatusOr<Schedule> MakeSchedule(const Trace& trace, const PolicySpec& policy,
                                      const planner::PlannerOptions& options) {
  if (absl::Status status = ValidateTrace(trace); !status.ok()) return status;
  absl::StatusOr<Schedule> schedule = Make(trace, policy, options);
  if (schedule.ok()) schedule->policy = Name(policy);
  return schedule;
}

}  // namespace geminid::sim
