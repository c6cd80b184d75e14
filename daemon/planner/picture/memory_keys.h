// How pictures of plans, simulated steps and forecasts show what occupies device memory.
#ifndef GEMINID_DAEMON_PLANNER_PICTURE_MEMORY_KEYS_H_
#define GEMINID_DAEMON_PLANNER_PICTURE_MEMORY_KEYS_H_

#include "base/svg.h"

namespace geminid::planner {

// Colors of medium lightness that people with red-green blindness can tell apart (Okabe and Ito,
// 2008).
inline constexpr base::SvgKey kWeightsKey = {"#0072b2", "gathered weights"};
inline constexpr base::SvgKey kArrivingKey = {"#56b4e9", "arriving"};
inline constexpr base::SvgKey kLeavingKey = {"#d55e00", "gradients leaving"};
inline constexpr base::SvgKey kActivationsKey = {"#009e73", "activations"};

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_PICTURE_MEMORY_KEYS_H_
