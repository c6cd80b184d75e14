#ifndef GEMINID_TESTS_DAEMON_PLANNER_REFERENCE_H_
#define GEMINID_TESTS_DAEMON_PLANNER_REFERENCE_H_

#include <cstdint>

#include "daemon/planner/contract/trace.h"

namespace geminid::planner {

// The least bytes per iteration of any repeated schedule. Tries every set of chunks to hold at
// every moment, and every set to carry over the boundary. Only bytes count, not offsets.
// Exponential: at most 10 chunks. Gradients do not drain (drain_moments 0).
std::uint64_t ExhaustiveLeastBytes(const Trace& trace, bool weights_change_between_iterations);

}  // namespace geminid::planner

#endif  // GEMINID_TESTS_DAEMON_PLANNER_REFERENCE_H_
