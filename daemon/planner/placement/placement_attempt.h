#ifndef GEMINID_DAEMON_PLANNER_PLACEMENT_PLACEMENT_ATTEMPT_H_
#define GEMINID_DAEMON_PLANNER_PLACEMENT_PLACEMENT_ATTEMPT_H_

#include <cstdint>
#include <vector>

#include "daemon/planner/placement/free_space.h"
#include "daemon/planner/problem/problem.h"
#include "daemon/planner/retention/residency_draft.h"

namespace geminid::planner {

// One attempt to place all drafts (assign_offsets.h). Sets their offsets, and returns the indices
// of the drafts that found no place, ascending. The placers meet where moment `cut` begins. Drafts
// alive across `cut` are placed before the placers run. If nothing else helps, drafts are split
// (one_way_placer.h). Adds the operations to `work`.
std::vector<std::uint32_t> AttemptPlacement(const Problem& problem, FreeSpace::Prefer prefer,
                                            std::int64_t cut, std::vector<ResidencyDraft>& drafts,
                                            std::int64_t& work);

// The moment of most capacity.
std::int64_t PeakMoment(const Problem& problem);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_PLACEMENT_PLACEMENT_ATTEMPT_H_
