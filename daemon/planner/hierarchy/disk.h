#ifndef GEMINID_DAEMON_PLANNER_HIERARCHY_DISK_H_
#define GEMINID_DAEMON_PLANNER_HIERARCHY_DISK_H_

#include "absl/status/status.h"
#include "daemon/planner/hierarchy/evaluate.h"

// The host and the tier below it.
//
// Host memory holds gradients, offloaded activations and the spare of the update whatever happens.
// Home copies of weights and optimizer state lie in the rest; if it is too small it becomes a cache
// of the disk. The cache is planned like the device, with the same planner, on the trace that the
// device plan makes of it: a home copy is used when the device plan issues its load, and weight and
// state together when the chunk is updated, which is just before its first load (or, with updates
// during backward, just after its gradient). What is not in host memory all the time is read where
// the plan loads it and, being changed once per step, written once per step.

namespace geminid::planner {

// Write-back buffers besides the extents being read into: a few in flight saturate a drive.
inline constexpr std::uint64_t kDiskWriteBuffers = 3;

// Fills the ledgers of host and disk, what they lack, remedies, the disk plan, and the traffic and
// seconds it adds. Without a device plan (it lacks room) no disk plan is made either. Errors: those
// of MakePlan other than a lack of room.
absl::Status PlanHostAndDisk(const Prepared& prepared, const Occupancy& occupancy,
                             HierarchyPlan& plan);

// Once the step time is known.
void RateDiskLife(const Machine& machine, HierarchyPlan& plan);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_HIERARCHY_DISK_H_
