// A sampled iteration, and the loads and drops for its repetitions.
#ifndef GEMINID_PLAN_H_
#define GEMINID_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "geminid/types.h"

namespace geminid {

struct TraceChunk {
  ChunkId chunk = kNoChunk;
  uint64_t device_bytes = 0;    // bytes that it occupies in the arena
  uint64_t transfer_bytes = 0;  // bytes that one load moves from host to device on this rank
  uint64_t gradient_bytes = 0;  // bytes that this rank writes back after the last use
  bool frozen = false;          // the optimizer never changes it
};

struct TraceUse {
  uint32_t index = 0;        // into Trace::chunks
  bool invalidates = false;  // after this moment the device copy is a gradient
};

struct TraceMoment {
  std::vector<TraceUse> uses;
  uint64_t workspace_bytes = 0;  // peak of non-model memory during the moment
  double compute_seconds = 0;
};

struct LinkModel {
  double host_to_device_bytes_per_second = 0;
  double device_to_host_bytes_per_second = 0;
  double latency_seconds = 0;
  // The fraction of its speed that each direction keeps while both transfer, 0.5 to 1.
  double both_directions_share = 1;
  // The joint speed, per direction, of the ranks behind one root complex; 0: no known limit.
  double uplink_bytes_per_second = 0;
  uint32_t ranks_per_uplink = 1;
};

// One iteration, moment by moment.
struct Trace {
  uint64_t arena_bytes = 0;
  std::vector<TraceChunk> chunks;
  std::vector<TraceMoment> moments;
  LinkModel link;
};

enum class PlacementPolicy : uint8_t { kNone = 0, kDevice = 1, kCpu = 2, kAuto = 3 };

struct PlanRequest {
  PlacementPolicy policy = PlacementPolicy::kAuto;
  // The optimizer changes unfrozen chunks between iterations: device copies are then stale.
  bool weights_change_between_iterations = true;
  uint32_t drain_moments = 1;          // how long a reduced chunk still occupies its extent
  uint32_t max_lookahead_moments = 0;  // 0: the planner's default
};

struct PlannedLoad {
  uint32_t index = 0;  // into Trace::chunks
  uint64_t device_offset = 0;
  uint32_t deadline_moment = 0;  // below the issuing moment: in the next iteration
};

struct PlannedDrop {
  uint32_t index = 0;  // into Trace::chunks
  bool becomes_gradient = false;
  uint32_t free_moment = 0;
};

struct PlannedMoment {
  std::vector<PlannedLoad> loads;  // to issue when the moment begins, in this order
  std::vector<PlannedDrop> drops;  // to execute when the moment ends
};

struct PlannedStall {
  uint32_t moment = 0;
  double seconds = 0;
  std::string cause;
  double unavoidable_seconds = 0;  // the part of `seconds` that every plan would wait
};

struct PlannedPlacement {
  uint32_t index = 0;  // into Trace::chunks
  uint64_t device_offset = 0;
};

struct Plan {
  std::vector<PlannedMoment> moments;
  bool everything_fits = false;
  uint64_t transfer_bytes = 0;              // host to device, per iteration and rank
  uint64_t transfer_bytes_lower_bound = 0;  // no plan can move fewer
  uint64_t gradient_bytes = 0;              // device to host, per iteration and rank
  double predicted_step_seconds = 0;
  double step_lower_bound_seconds = 0;  // no plan has a shorter step on this link model
  std::vector<PlannedStall> stalls;
  uint64_t trace_hash = 0;  // equal on all ranks with the same request
  uint64_t plan_hash = 0;
  std::string explanation;  // for people
  // Chunks that are in the arena when the first planned iteration begins.
  std::vector<PlannedPlacement> resident_at_start;
};

}  // namespace geminid

#endif  // GEMINID_PLAN_H_
