// A policy's decisions: which chunks to load and to drop at which moment.
#ifndef GEMINID_TOOLS_SIM_POLICIES_SCHEDULE_H_
#define GEMINID_TOOLS_SIM_POLICIES_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/planner/contract/plan.h"
#include "daemon/planner/contract/trace.h"

namespace geminid::sim {

struct ScheduledLoad {
  planner::ChunkIndex chunk = 0;
  uint64_t device_offset = 0;
  bool prefetch = false;  // first used at a later moment
};

struct Eviction {
  planner::ChunkIndex chunk = 0;
  bool copy_back = false;  // to the host first, although its home copy is still valid
};

struct ScheduledMoment {
  std::vector<Eviction> evictions;         // before the loads
  std::vector<ScheduledLoad> loads;        // before the moment, in this order
  std::vector<planner::ChunkIndex> drops;  // after the moment; gradients leave without a drop
};

// One or more iterations, which repeat. Gradients are not part of it: a use that invalidates
// weights turns the chunk into its gradient, which leaves as soon as it can.
struct Schedule {
  std::string policy;
  uint64_t iterations = 1;               // until it repeats
  std::vector<ScheduledMoment> moments;  // iterations times those of the trace
  std::vector<planner::Placement> resident_at_start;
  // True: memory without fragmentation, as no real allocator has. Offsets are addresses in a space
  // as large as all chunks together; at most the moment's capacity of it may be occupied, anywhere.
  // False: offsets are places in the arena itself.
  bool counts_bytes_only = false;
  uint64_t address_space_bytes = 0;  // with counts_bytes_only
};

// Bytes per iteration, as a mean over the iterations of the schedule.
struct ScheduledBytes {
  double up = 0;
  double down = 0;  // gradients and copies back
};
ScheduledBytes BytesOf(const planner::Trace& trace, const Schedule& schedule);

Schedule FromPlan(const planner::Plan& plan);

// Bytes that an object of this size takes in an arena of the daemon: whole slots.
uint64_t ExtentBytes(uint64_t bytes);

// Bytes that chunks may occupy at a moment: what the activations leave of the arena.
uint64_t CapacityBytes(const planner::Trace& trace, size_t moment);

// INTERNAL, with the first violation: a use of a chunk that is not on the device, a load of one
// that is, a use of a stale weight, or more than fits. Shares no code with the policies. Gradients
// occupy nothing here: the executor of the schedule waits until they have left.
absl::Status CheckSchedule(const planner::Trace& trace, const Schedule& schedule);

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_POLICIES_SCHEDULE_H_
