#ifndef GEMINID_DAEMON_PLANNER_PLACEMENT_ASSIGN_OFFSETS_H_
#define GEMINID_DAEMON_PLANNER_PLACEMENT_ASSIGN_OFFSETS_H_

#include <cstdint>
#include <vector>

#include "daemon/planner/problem/problem.h"
#include "daemon/planner/retention/residency_draft.h"

namespace geminid::planner {

// Gives every draft one offset for its whole lifetime, below the capacity of each of its moments
// and apart from every other draft alive with it.
//
// Drafts alive at the moment of least capacity are stacked from the bottom; from there one
// placer goes forwards and one backwards through time, each placing drafts as it meets them
// (one_way_placer.h). While capacity only grows away from that moment (activations pile up in
// forward and shrink in backward) and sizes are equal, a draft met always finds a slot: whatever is
// met later lives where capacity is no smaller. Drafts over the iteration boundary, where the
// placers end, are placed ahead of them. Where a draft had to be split the placers are tried again
// with their end at the moment of most capacity, and with low offsets preferred; the least bytes
// win.
//
// What the placers cannot make room for is relaxed and all are placed again: prefetch is given up,
// then the draft is split, then its drain is cut, and at last everything alive at its moment is
// split around it. Ends after a fixed number of rounds, if need be with every use a draft of its
// own, which always fits. Never overlaps. Adds its operations to `work` and begins no further
// variant once that exceeds `work_limit`. O(S (log S + sqrt(free ranges))) a variant, and 128
// extents or a little more for each draft that needs room made.
void AssignOffsets(const Problem& problem, std::int64_t work_limit,
                   std::vector<ResidencyDraft>& drafts, std::int64_t& work);

// Gives every item a place of its own; the items must fit below the least capacity together.
void AssignSeparateOffsets(const Problem& problem, std::vector<ResidencyDraft>& drafts);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_PLACEMENT_ASSIGN_OFFSETS_H_
