#ifndef GEMINID_DAEMON_PLANNER_HIERARCHY_DISK_H_
#define GEMINID_DAEMON_PLANNER_HIERARCHY_DISK_H_

#include "absl/status/status.h"
#include "daemon/planner/hierarchy/evaluate.h"

// The host tier and the disk below it.
//
// Host memory always holds gradients, offloaded activations and the spare of the update. Home
// copies of weights and optimizer state lie in the rest. If the rest is too small, it becomes a
// cache of the disk. The same planner plans the cache, on a trace that follows from the device
// plan. In this trace a home copy is used when the device plan issues its load. Weight and state
// are used together when the chunk is updated: just before its first load, or just after its
// gradient with updates during backward. An object that is not in host memory all the time is read
// where the plan loads it. If it changes, it is written once per step.

namespace geminid::planner {

// Write-back buffers besides the extents that reads fill. A few in flight saturate a drive.
inline constexpr std::uint64_t kDiskWriteBuffers = 3;

// Fills the ledgers of host and disk, the bytes that they lack, the remedies, the disk plan, and
// its traffic and seconds. If there is no device plan because the device lacks space, no disk plan
// is made either. Errors: those of MakePlan other than a lack of space.
absl::Status PlanHostAndDisk(const PreparedProblem& prepared, const Occupancy& occupancy,
                             HierarchyPlan& plan);

// Sets the life of the disks. The step time must be known.
void RateDiskLife(const Machine& machine, HierarchyPlan& plan);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_HIERARCHY_DISK_H_
