#ifndef GEMINID_DAEMON_PLANNER_BOUND_BYTE_BOUND_H_
#define GEMINID_DAEMON_PLANNER_BOUND_BYTE_BOUND_H_

#include <cstdint>

#include "daemon/planner/problem/problem.h"

namespace geminid::planner {

// A proven lower bound on the bytes that any plan, repeated each iteration, must load per
// iteration.
//
// 1. A gap without value costs one load, whatever a plan retains.
// 2. Relaxation: let each byte of a chunk be a page of its own. Every plan is also a schedule of
//    pages, so the best schedule of pages loses no more. Pages have equal sizes, so evicting the
//    pages with the farthest next use is optimal (retention.h). Every plan loses at least the bytes
//    that this schedule loses.
// 3. A lost byte of a chunk costs w = transfer / extent. If w differs, order its values 0 < w1 < w2
//    < ... The cost is the sum over k of (wk - wk-1) times the bytes lost by chunks with w >= wk.
//    Each of these terms is at least the result of step 2 for those chunks alone, because the other
//    chunks only take space from them. Beyond a few distinct values, w is rounded down to one of
//    them.
// 4. Over the boundary: compare a plan that is repeated q times with the best schedule of q
//    iterations that starts with everything held for free. The plan loses at least as much. If the
//    state of that schedule repeats, its mean over the repeating part is the limit for q to
//    infinity. Otherwise its mean from the start holds.
// If sizes are equal and no valued gap crosses the boundary, the bound is attained: capacities are
// whole slots, and losses are whole chunks.
//
// The bound holds for the drains in `problem`, which occupy space. O(8 * 8 * G log G) for G gaps.
std::uint64_t LowerBoundBytes(const Problem& problem);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_BOUND_BYTE_BOUND_H_
