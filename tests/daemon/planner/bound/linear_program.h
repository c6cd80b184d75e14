#ifndef GEMINID_TESTS_DAEMON_PLANNER_BOUND_LINEAR_PROGRAM_H_
#define GEMINID_TESTS_DAEMON_PLANNER_BOUND_LINEAR_PROGRAM_H_

#include "daemon/planner/problem/problem.h"

namespace geminid::planner {

enum class Gaps { kFractional, kWhole };

// The least bytes loaded per iteration as a linear (kFractional) or integer (kWhole) program, which
// GLPK solves. The program has a variable for each valued gap (the retained part) and a constraint
// for each moment (the bytes that retained gaps may take). It is a second implementation of the
// bound that byte_bound.h computes by eviction. The iteration repeats, so gaps over the boundary
// wrap around.
double ProgramLeastBytes(const Problem& problem, Gaps gaps);

}  // namespace geminid::planner

#endif  // GEMINID_TESTS_DAEMON_PLANNER_BOUND_LINEAR_PROGRAM_H_
