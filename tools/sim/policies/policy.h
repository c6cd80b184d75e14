// Policies that decide which chunks lie on the device: ours and its rivals. Pure functions.
#ifndef GEMINID_TOOLS_SIM_POLICIES_POLICY_H_
#define GEMINID_TOOLS_SIM_POLICIES_POLICY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/planner/contract/plan.h"
#include "daemon/planner/contract/trace.h"
#include "daemon/planner/demand/demand_cache.h"
#include "tools/sim/policies/schedule.h"

namespace geminid::sim {

using Memory = planner::CacheRule::Memory;

enum class PolicyKind {
  kAuto,    // the planner's plan, for the least time
  kBytes,   // the planner's plan, for the least bytes; the space of gradients is free at once
  kCpu,     // the planner's policy cpu: evicts a chunk after each operator
  kDevice,  // the planner's policy device: every chunk has its own place
  kStatic,  // a fixed part of the model is pinned, the rest is loaded for each operator
  kLru,     // evicts the least recently used chunk when room is needed
  kGemini,  // of Colossal-AI: evicts the chunk that warm-up saw used last, and copies it back
};

struct PolicySpec {
  PolicyKind kind = PolicyKind::kAuto;
  // kStatic: the part of the model's bytes to pin, in order of first use; above 1: as much as fits.
  double fraction = 2;
  Memory memory = Memory::kArena;  // of kStatic, kLru and kGemini
};

// "auto", "bytes", "cpu", "device", "lru", "gemini", "static" (as much as fits), "static:0.25"; of
// the last four also "lru@ideal" and so on, in memory that never fragments.
absl::StatusOr<PolicySpec> ParsePolicy(const std::string& text);
std::string Name(const PolicySpec& policy);

// auto, bytes, cpu, device, static with a quarter, a half, and as much as fits, lru, gemini; in the
// arena.
std::vector<PolicySpec> AllPolicies();

// The planner's options in the simulator: extents as in the daemon's arenas.
planner::PlannerOptions SimulatedPlannerOptions();

// The schedule that the policy follows from one iteration to the next.
//
// static, lru and gemini load each chunk when it is needed and never before, as their originals do
// without prefetching. They know that weights change with each step and never use a stale one, and
// the space of a gradient counts as free at once.
//
// RESOURCE_EXHAUSTED: what the policy must keep does not fit. INVALID_ARGUMENT: a malformed trace.
absl::StatusOr<Schedule> MakeSchedule(const planner::Trace& trace, const PolicySpec& policy,
                                      const planner::PlannerOptions& options);

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_POLICIES_POLICY_H_
