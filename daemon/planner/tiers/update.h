#ifndef GEMINID_DAEMON_PLANNER_TIERS_UPDATE_H_
#define GEMINID_DAEMON_PLANNER_TIERS_UPDATE_H_

#include <cstddef>
#include <vector>

#include "daemon/planner/tiers/tier_plan.h"

// The optimizer's pipeline between backward and the next forward: when the new weights of each
// chunk are on the device.

namespace geminid::planner {

// How long one chunk's update keeps each resource of this rank busy.
struct UpdateCost {
  double cpu = 0;     // the kernel on the host
  double memory = 0;  // the kernel's bytes and the streamed state's, through host memory
  double up = 0;      // the streamed state, or the new weight of state on the host
  double down = 0;    // the streamed state
  double device = 0;  // the kernel on the device
};
UpdateCost CostOfUpdate(const Machine& machine, const OptimizerItem& item,
                        std::uint64_t weight_transfer_bytes, OptimizerPlace place);

// One update. Jobs are in the order in which updates are done. Times are seconds after the start of
// the next iteration, which is the arrival of the last gradient on the host.
struct UpdateJob {
  OptimizerPlace place = OptimizerPlace::kHost;
  UpdateCost cost = {};
  double needed_at = 0;  // the start of the first operator that uses the weight
};

// How many streamed chunks are in flight at once: one goes up, one is in the kernel, one comes
// down.
inline constexpr std::size_t kStreamBuffers = 3;

// The time at which the new weight of each job is on the device. Each resource serves the jobs in
// their order. A streamed chunk goes up only when a buffer is free. O(jobs).
std::vector<double> FinishUpdates(const std::vector<UpdateJob>& jobs);

// The delay of the computation that makes no job late: the largest lateness.
double ExposedSeconds(const std::vector<UpdateJob>& jobs);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_TIERS_UPDATE_H_
