// What others than the planner do with a trace, and how long that takes by the planner's own
// prediction.
#ifndef GEMINID_TESTS_TOOLS_SIM_RIVALS_H_
#define GEMINID_TESTS_TOOLS_SIM_RIVALS_H_

#include <vector>

#include "daemon/planner/contract/plan.h"
#include "daemon/planner/contract/trace.h"
#include "tools/sim/policies/schedule.h"

namespace geminid::sim {

// The schedules of cpu, static, LRU and Gemini, without those that do not fit. The options concern
// the policy cpu, which is the planner's own.
std::vector<Schedule> RivalsOf(const planner::Trace& trace, const planner::PlannerOptions& options);

// What the planner's own prediction says of a rival's schedule: nothing is copied back, gradients
// leave when their space is needed. Seconds an iteration.
double PredictedSeconds(const planner::Trace& trace, const Schedule& schedule);

// By how much more than by rounding a plan may be worse than a rival: what a rival whose state
// repeats only after several iterations may gain by it, as a plan repeats after one; and a plan
// that is faster by less than a thousandth is not worth more bytes (candidates.cc).
inline constexpr double kLongerPeriod = 0.02;
inline constexpr double kNotWorthMoreBytes = 1e-3;

}  // namespace geminid::sim

#endif  // GEMINID_TESTS_TOOLS_SIM_RIVALS_H_
