#ifndef GEMINID_TESTS_DAEMON_PLANNER_BOUND_LINEAR_PROGRAM_H_
#define GEMINID_TESTS_DAEMON_PLANNER_BOUND_LINEAR_PROGRAM_H_

#include "daemon/planner/problem/problem.h"

namespace geminid::planner {

enum class Gaps { kFractional, kWhole };

// The least bytes loaded per iteration as a linear (kFractional) or integer (kWhole) program,
// solved by GLPK: per valued gap the part that is kept, per moment what the retained gaps may take.
// A second implementation of what byte_bound.h computes by eviction. Repeated each iteration, so
// gaps over the boundary wrap around.
double ProgramLeastBytes(const Problem& problem, Gaps gaps);

}  // namespace geminid::planner

#endif  // GEMINID_TESTS_DAEMON_PLANNER_BOUND_LINEAR_PROGRAM_H_
