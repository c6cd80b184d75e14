#ifndef GEMINID_DAEMON_PLANNER_DEMAND_CACHE_CANDIDATE_H_
#define GEMINID_DAEMON_PLANNER_DEMAND_CACHE_CANDIDATE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/planner/contract/plan.h"
#include "daemon/planner/contract/trace.h"
#include "daemon/planner/demand/demand_cache.h"
#include "daemon/planner/problem/problem.h"
#include "daemon/planner/retention/residency_draft.h"
#include "daemon/planner/retention/retention.h"

// The candidate of a cache that is filled on demand. A cache chooses at once which chunks stay and
// where. Choosing first and placing later is better if chunks have equal sizes. If sizes differ, or
// copies stay valid over the boundary, a cache is sometimes better.

namespace geminid::planner {

struct CacheCandidate {
  Retention retained;
  std::vector<ResidencyDraft> drafts;  // placed; each begins at its first use
};

// Runs the cache until an iteration ends in the state in which it began. If no state repeats, the
// items on which two iterations agree cross the boundary, and the others are dropped there. Adds
// the operations to `work`. Nothing if draining gradients leave no place for used chunks, or if
// `work` exceeds `work_limit`. Cost: at most the extents in the arena for each load, in each of at
// most some twenty iterations.
std::optional<CacheCandidate> RunOnDemand(const Trace& trace, const Problem& problem,
                                          const CacheRule& rule, std::int64_t work_limit,
                                          std::int64_t& work);

// Moves the begins of placed drafts back to where ScheduleLoads would issue the loads. A draft
// whose place is free for less time moves back less. O(S * S) for S drafts.
void LoadAheadInPlace(const Trace& trace, const PlannerOptions& options, const Problem& problem,
                      std::vector<ResidencyDraft>& drafts, std::int64_t& work);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_DEMAND_CACHE_CANDIDATE_H_
