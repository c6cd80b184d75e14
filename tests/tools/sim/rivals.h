// The schedules of the planner's rivals for a trace, and their time by the planner's own
// prediction.
#ifndef GEMINID_TESTS_TOOLS_SIM_RIVALS_H_
#define GEMINID_TESTS_TOOLS_SIM_RIVALS_H_

#include <vector>

#include "daemon/planner/contract/plan.h"
#include "daemon/planner/contract/trace.h"
#include "tools/sim/policies/schedule.h"

namespace geminid::sim {

// The schedules of cpu, static, LRU and Gemini, except those that do not fit. The options are for
// the policy cpu, which is the planner's own.
std::vector<Schedule> RivalsOf(const planner::Trace& trace, const planner::PlannerOptions& options);

// The planner's prediction for a rival's schedule, in seconds per iteration. Nothing is copied
// back, and gradients leave when their space is needed.
double PredictedSeconds(const planner::Trace& trace, const Schedule& schedule);

// The tolerances, beyond rounding, by which a plan may be worse than a rival. A rival whose state
// repeats only after several iterations may gain by this; a plan repeats after one. A plan that is
// faster by less than a thousandth is not worth more bytes (candidates.cc).
inline constexpr double kLongerPeriod = 0.02;
inline constexpr double kNotWorthMoreBytes = 1e-3;

}  // namespace geminid::sim

#endif  // GEMINID_TESTS_TOOLS_SIM_RIVALS_H_
