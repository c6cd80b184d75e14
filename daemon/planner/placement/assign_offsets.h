#ifndef GEMINID_DAEMON_PLANNER_PLACEMENT_ASSIGN_OFFSETS_H_
#define GEMINID_DAEMON_PLANNER_PLACEMENT_ASSIGN_OFFSETS_H_

#include <cstdint>
#include <vector>

#include "daemon/planner/problem/problem.h"
#include "daemon/planner/retention/residency_draft.h"

namespace geminid::planner {

// Gives every draft one offset for its whole lifetime, below the capacity of each of its moments.
// Drafts that are alive together do not overlap.
//
// Drafts alive at the moment of least capacity are stacked from the bottom. From that moment, one
// placer goes forwards through time and one backwards, and each places the drafts that it meets
// (one_way_placer.h). Activations pile up in forward and shrink in backward, so capacity usually
// only grows away from that moment. If it does and sizes are equal, every draft finds a slot:
// whatever a placer meets later lives where capacity is no smaller. Drafts over the iteration
// boundary, where the placers end, are placed before the placers run. If a draft had to be split,
// the placers run again with their end at the moment of most capacity, and again with low offsets
// preferred. The result with the fewest bytes wins.
//
// If the placers find no space for a draft, the draft is relaxed, and all drafts are placed again.
// Relaxing gives up the prefetch, then splits the draft, then shortens its drain. At last it splits
// every draft that is alive at its moment. The number of rounds is fixed; after them every use
// becomes a draft of its own, which always fits. Drafts never overlap. Adds the operations to
// `work`, and begins no further variant once `work` exceeds `work_limit`. O(S (log S + sqrt(free
// ranges))) a variant for S drafts, and about 128 extents for each draft that needs cleared space.
void AssignOffsets(const Problem& problem, std::int64_t work_limit,
                   std::vector<ResidencyDraft>& drafts, std::int64_t& work);

// Gives every item a place of its own. The items must fit below the least capacity together.
void AssignSeparateOffsets(const Problem& problem, std::vector<ResidencyDraft>& drafts);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_PLACEMENT_ASSIGN_OFFSETS_H_
