#ifndef GEMINID_DAEMON_PLANNER_RETENTION_RETENTION_H_
#define GEMINID_DAEMON_PLANNER_RETENTION_RETENTION_H_

#include <cstdint>
#include <vector>

#include "daemon/planner/problem/problem.h"

// What stays on the device: which gaps between two uses of a chunk are bridged.

namespace geminid::planner {

// Per gap: 1 if the chunk stays. Gaps without value are never kept, valued gaps without interior
// always are.
using Retention = std::vector<std::uint8_t>;

// The bytes that gaps may take at each moment: what the capacity leaves beside the requirements and
// `reserve_bytes` more, never negative.
std::vector<std::int64_t> FreeBytesForGaps(const Problem& problem, std::int64_t reserve_bytes = 0);

// Chooses the gaps to keep so that at each moment they fit in `free_bytes` together.
//
// Choosing gaps is choosing intervals of largest total value under a capacity per moment. For equal
// sizes and transfers on a line, giving up the interval that ends last whenever a moment is too
// full is optimal: of the intervals at that moment it is the one that blocks the most later
// moments, so any solution that keeps it and drops another can swap the two and stay feasible
// (Belady 1966; the capacity may vary, since the argument looks at one moment at a time).
//
// If valued gaps cross the iteration boundary the iterations are unrolled until the state repeats;
// what two consecutive iterations agree on is kept, and all that still fits is added (optimal if
// the state repeated, which the lower bound then confirms). Unequal sizes: the same rule, then
// every dropped gap that fits is taken back, most bytes saved per byte and moment held first.
Retention ChooseRetention(const Problem& problem, const std::vector<std::int64_t>& free_bytes);

// Only the gaps that need no room: the policy kCpu.
Retention RetainAdjacent(const Problem& problem);

// Every gap with a value: what kDevice does, and kAuto if everything fits.
Retention RetainAll(const Problem& problem);

// Bytes loaded per iteration if exactly these gaps are kept.
std::uint64_t LoadBytes(const Problem& problem, const Retention& retained);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_RETENTION_RETENTION_H_
