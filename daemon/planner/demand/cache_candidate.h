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

// What a cache that is filled on demand would do: a way to choose what stays and where at once.
// Choosing first and placing later is better where chunks are equal; where they are not, or copies
// stay valid over the boundary, this sometimes is.

namespace geminid::planner {

struct CacheCandidate {
  Retention retained;
  std::vector<ResidencyDraft> drafts;  // placed; each begins at its first use
};

// Runs the cache until an iteration ends in the state that it began with. If that does not come,
// what two iterations agree on is carried over the boundary and the rest is given up there.
// Nothing if gradients that drain leave no place for what is used, or if `work`, to which the
// operations are added, exceeds `work_limit`. At most the extents in the arena for each load, in
// each of at most some twenty iterations.
std::optional<CacheCandidate> RunOnDemand(const Trace& trace, const Problem& problem,
                                          const CacheRule& rule, std::int64_t work_limit,
                                          std::int64_t& work);

// Moves the begins of placed drafts back, to where ScheduleLoads would issue the loads or as near
// as their places are free. O(S * S) for S drafts.
void LoadAheadInPlace(const Trace& trace, const PlannerOptions& options, const Problem& problem,
                      std::vector<ResidencyDraft>& drafts, std::int64_t& work);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_DEMAND_CACHE_CANDIDATE_H_
