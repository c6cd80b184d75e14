#ifndef GEMINID_DAEMON_PLANNER_HIERARCHY_UPDATE_H_
#define GEMINID_DAEMON_PLANNER_HIERARCHY_UPDATE_H_

#include <cstddef>
#include <vector>

#include "daemon/planner/hierarchy/hierarchy.h"

// The optimizer's pipeline between backward and the next forward: when the new weights of each
// chunk are on the device, and which chunks must keep their state there for nobody to wait.

namespace geminid::planner {

// How long one chunk's update keeps each resource of this rank busy.
struct UpdateCost {
  double cpu = 0;     // the kernel on the host
  double memory = 0;  // its bytes, and those of the streamed state, through host memory
  double up = 0;      // the streamed state; for state on the host the new weight
  double down = 0;    // the streamed state
  double device = 0;  // the kernel on the device
};
UpdateCost CostOfUpdate(const Machine& machine, const OptimizerItem& item,
                        std::uint64_t weight_transfer_bytes, OptimizerPlace place);

// One update, in the order in which they are done. Times are seconds after the start of the next
// iteration, which is the end of the last gradient's way down.
struct UpdateJob {
  OptimizerPlace place = OptimizerPlace::kHost;
  UpdateCost cost = {};
  double gradient_at = 0;  // not before; 0 or less
  double needed_at = 0;    // the first operator that uses the weight
};

// How many chunks may be on their way up, in the kernel and on their way down at once: one each.
inline constexpr std::size_t kStreamBuffers = 3;

// When the new weight of each job is on the device. Each resource serves the jobs in their order;
// a streamed chunk goes up only when a buffer is free. O(jobs).
std::vector<double> FinishUpdates(const std::vector<UpdateJob>& jobs);

// By how much the computation must be delayed so that no job is late: the largest lateness.
double ExposedSeconds(const std::vector<UpdateJob>& jobs);

// Updates during backward, jobs in order of gradient arrival, all times relative to the end of
// backward. The smallest n such that the CPU pipeline has finished all but the last n chunks when
// the device, which starts at the end of backward, has updated those n. O(jobs).
std::size_t SmallestDeviceTail(const std::vector<UpdateJob>& jobs);

// Updates after backward in order of next use: the smallest n such that, with the state of the
// first n chunks on the device, no other is late. O(jobs).
std::size_t SmallestDeviceHead(const std::vector<UpdateJob>& jobs);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_HIERARCHY_UPDATE_H_
