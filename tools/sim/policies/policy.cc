#include "tools/sim/policies/policy.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "daemon/planner/make_plan.h"
#include "proto/shm/lease.h"
#include "tools/sim/policies/demand_cache.h"

namespace geminid::sim {
namespace {

using planner::ChunkIndex;
using planner::Trace;

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

std::vector<ChunkIndex> FirstUseOrder(const Trace& trace) {
  std::vector<bool> seen(trace.chunks.size(), false);
  std::vector<ChunkIndex> order;
  for (const planner::MomentTrace& moment : trace.moments) {
    for (const planner::Use& use : moment.uses) {
      if (seen[use.chunk]) continue;
      seen[use.chunk] = true;
      order.push_back(use.chunk);
    }
  }
  return order;
}

// Whether the pinned chunks and, at each moment, those it uses fit together.
bool PinsFit(const Trace& trace, const std::vector<bool>& pinned, uint64_t pinned_bytes) {
  for (size_t t = 0; t < trace.moments.size(); ++t) {
    uint64_t needed = pinned_bytes;
    for (const planner::Use& use : trace.moments[t].uses) {
      if (!pinned[use.chunk]) needed += ExtentBytes(trace.chunks[use.chunk].size_bytes);
    }
    if (needed > CapacityBytes(trace, t)) return false;
  }
  return true;
}

absl::StatusOr<Schedule> Pinned(const Trace& trace, double fraction, Memory memory) {
  uint64_t model_bytes = 0;
  for (const planner::Chunk& chunk : trace.chunks) model_bytes += ExtentBytes(chunk.size_bytes);
  DemandRules rules;
  rules.pinned.assign(trace.chunks.size(), false);
  rules.drops_after_use = true;
  rules.memory = memory;
  rules.leaves_before = [](const CachedChunk& a, const CachedChunk& b) {
    return a.last_used < b.last_used;
  };
  const bool as_much_as_fits = fraction > 1;
  const double wanted = fraction * static_cast<double>(model_bytes);
  uint64_t pinned_bytes = 0;
  for (const ChunkIndex chunk : FirstUseOrder(trace)) {
    if (static_cast<double>(pinned_bytes) >= wanted) break;
    rules.pinned[chunk] = true;
    pinned_bytes += ExtentBytes(trace.chunks[chunk].size_bytes);
    if (as_much_as_fits && !PinsFit(trace, rules.pinned, pinned_bytes)) {
      rules.pinned[chunk] = false;
      pinned_bytes -= ExtentBytes(trace.chunks[chunk].size_bytes);
    }
  }
  if (!PinsFit(trace, rules.pinned, pinned_bytes)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(pinned_bytes, " pinned bytes leave too little for the operators; pin less"));
  }
  return RunDemandCache(trace, rules);
}

absl::StatusOr<Schedule> Lru(const Trace& trace, Memory memory) {
  DemandRules rules;
  rules.memory = memory;
  rules.leaves_before = [](const CachedChunk& a, const CachedChunk& b) {
    return a.last_used < b.last_used;
  };
  return RunDemandCache(trace, rules);
}

// AutoPlacementPolicy in its steady state: victims by the next use that warm-up recorded, farthest
// first, looking to the end of the iteration only; they are moved to the host, not dropped.
absl::StatusOr<Schedule> Gemini(const Trace& trace, Memory memory) {
  DemandRules rules;
  rules.memory = memory;
  rules.copies_back = true;
  rules.leaves_before = [](const CachedChunk& a, const CachedChunk& b) {
    return a.next_use > b.next_use;
  };
  return RunDemandCache(trace, rules);
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
      return Pinned(trace, policy.fraction, policy.memory);
    case PolicyKind::kLru:
      return Lru(trace, policy.memory);
    case PolicyKind::kGemini:
      return Gemini(trace, policy.memory);
  }
  return absl::InvalidArgumentError("no such policy");
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
      "'", text, "' is no policy; it must be one of: auto, bytes, cpu, device, lru, gemini, ",
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
