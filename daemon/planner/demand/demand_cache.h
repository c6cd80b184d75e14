#ifndef GEMINID_DAEMON_PLANNER_DEMAND_DEMAND_CACHE_H_
#define GEMINID_DAEMON_PLANNER_DEMAND_DEMAND_CACHE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/planner/contract/plan.h"
#include "daemon/planner/contract/trace.h"
#include "daemon/planner/problem/problem.h"
#include "daemon/planner/retention/residency_draft.h"
#include "daemon/planner/retention/retention.h"

// What a cache that is filled on demand would do: a way to choose what stays and where at once.
// Choosing first and placing later (retention.h, assign_offsets.h) is better where chunks are
// equal; where they are not, or copies stay valid over the boundary, this sometimes is.

namespace geminid::planner {

struct DemandRule {
  enum class Leaves {
    kLeastRecent,  // the chunk used last the longest ago, until there is a hole
    kLastNeeded,   // the chunk used last in the rest of the iteration, until there is a hole
    // All that lies in the window that is cheapest to clear. A chunk costs what it takes to load it
    // again, divided by a power of the moments until that; what will be stale leaves at once.
    kCheapestWindow,
  };
  Leaves leaves = Leaves::kCheapestWindow;
  int power = 1;
  // By item: never leaves while its copy is valid, and has a place of its own. Empty: none.
  std::vector<bool> pinned = {};
  // What is not pinned leaves after each use, unless the next moment uses it too.
  bool drops_after_use = false;
};

struct DemandResult {
  Retention retained;
  std::vector<ResidencyDraft> drafts;  // placed; each begins at its first use
};

// Moves the begins of placed drafts back, to where ScheduleLoads would issue the loads or as near
// as their places are free. O(S * S) for S drafts.
void LoadAheadInPlace(const Trace& trace, const PlannerOptions& options, const Problem& problem,
                      std::vector<ResidencyDraft>& drafts, std::int64_t& work);

// Runs the cache until an iteration ends in the state that it began with. If that does not come,
// what two iterations agree on is carried over the boundary and the rest is given up there.
// Nothing if gradients that drain leave no place for what is used, or if `work`, to which the
// operations are added, exceeds `work_limit`. At most the extents in the arena for each load, in
// each of at most some twenty iterations.
std::optional<DemandResult> RunOnDemand(const Trace& trace, const Problem& problem,
                                        const DemandRule& rule, std::int64_t work_limit,
                                        std::int64_t& work);

// The items to pin, in the order of their first use: each that fits beside what every moment uses,
// or none after the first that does not.
enum class Pins { kAllThatFit, kUntilOneDoesNot };
std::vector<bool> PinInOrder(const Problem& problem, Pins pins);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_DEMAND_DEMAND_CACHE_H_
