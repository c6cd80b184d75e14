#ifndef GEMINID_DAEMON_PLANNER_RETENTION_RETENTION_H_
#define GEMINID_DAEMON_PLANNER_RETENTION_RETENTION_H_

#include <cstdint>
#include <vector>

#include "daemon/planner/problem/problem.h"

// Which chunks stay on the device: which gaps between two uses of a chunk are bridged.

namespace geminid::planner {

// Per gap: 1 if the chunk stays. Gaps without value are never retained. Valued gaps without an
// interior always are.
using Retention = std::vector<std::uint8_t>;

// The bytes that gaps may occupy at each moment: the capacity less the required bytes and less
// `reserve_bytes`, never negative.
std::vector<std::int64_t> FreeBytesForGaps(const Problem& problem, std::int64_t reserve_bytes = 0);

// Chooses the gaps to retain so that at each moment they fit in `free_bytes` together.
//
// Choosing gaps is choosing intervals of largest total value under a capacity per moment. For equal
// sizes and transfers on a line, evicting the interval that ends last whenever a moment is too full
// is optimal. Of the intervals at that moment, it blocks the most later moments. A solution that
// retains it and evicts another can swap the two and stay feasible (Belady 1966). The capacity may
// vary, because the argument looks at one moment at a time.
//
// If valued gaps cross the iteration boundary, the iterations are unrolled until the state repeats.
// Gaps on which two consecutive iterations agree are retained, and all that still fits is added.
// That is optimal if the state repeated; the lower bound then confirms it. For unequal sizes the
// rule is the same. Then every evicted gap that fits is taken back, in the order of bytes saved per
// byte and moment of space.
Retention ChooseRetention(const Problem& problem, const std::vector<std::int64_t>& free_bytes);

// Only the gaps that need no space: the policy kCpu.
Retention RetainAdjacent(const Problem& problem);

// Every gap with a value: the policy kDevice, and kAuto if everything fits.
Retention RetainAll(const Problem& problem);

// Bytes loaded per iteration if exactly these gaps are retained.
std::uint64_t LoadBytes(const Problem& problem, const Retention& retained);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_RETENTION_RETENTION_H_
