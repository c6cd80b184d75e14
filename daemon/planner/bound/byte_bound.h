#ifndef GEMINID_DAEMON_PLANNER_BOUND_BYTE_BOUND_H_
#define GEMINID_DAEMON_PLANNER_BOUND_BYTE_BOUND_H_

#include <cstdint>

#include "daemon/planner/problem/problem.h"

namespace geminid::planner {

// A proven lower bound on the bytes that any plan, repeated each iteration, must load per
// iteration.
//
// 1. Gaps without value cost one load each, whatever is kept.
// 2. Relaxation: let each byte of a chunk be a page of its own. Every plan is also a schedule of
//    pages, so the best schedule of pages loses no more. Pages have equal sizes, so giving up those
//    with the farthest next use is optimal (retention.h): E bytes are lost at least.
// 3. A lost byte of a chunk costs w = transfer / extent. If w differs, order its values
//    0 < w1 < w2 < ...; the cost is the sum over k of (wk - wk-1) times the bytes lost by chunks
//    with w >= wk, and each of these terms is at least what step 2 gives for those chunks alone,
//    with the room the others only take from them. Beyond a few distinct values, w is rounded down
//    to one of them.
// 4. Over the boundary: a plan repeated q times loses in q iterations at least what the best
// schedule
//    loses that starts with everything held for free. If the state of that schedule repeats, its
//    mean over the repeating part is the limit for q to infinity; otherwise its mean from the start
//    holds.
// With equal sizes the capacities are whole slots, all losses are whole chunks, and without valued
// gaps over the boundary the bound is attained.
//
// The answer is for the drains in `problem` (which occupy space). O(8 * 8 * G log G) at worst.
std::uint64_t LowerBoundBytes(const Problem& problem);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_BOUND_BYTE_BOUND_H_
