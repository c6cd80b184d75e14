// An engine's statistics on memory, transfers and plans.
#ifndef GEMINID_STATISTICS_H_
#define GEMINID_STATISTICS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "geminid/plan.h"

namespace geminid::zero {

// All numbers of an engine; all bytes are this rank's.
struct Statistics {
  uint64_t parameters = 0;
  uint64_t model_state_bytes = 0;  // weights, remainders and moments of this rank
  // Bytes of the arena for state, its gradients and spare extents, the sums of gradients of
  // Stage::kState, and the places of StatePlacement::kStreamed and of an ActivationStack.
  uint64_t device_state_bytes = 0;
  uint64_t activation_place_bytes = 0;  // of an ActivationStack or an ActivationStore
  uint64_t state_chunks_on_device = 0;
  uint64_t state_chunks_streamed = 0;  // on the host, updated by the device
  // For state on disk: bytes of this rank's files, and bytes read and written. A replacement
  // process continues the counts of the process before it.
  uint64_t state_disk_bytes = 0;
  uint64_t disk_read_bytes = 0;
  uint64_t disk_written_bytes = 0;
  std::string state_disk;   // for people; with kAuto how much and why; empty: no folders
  uint64_t host_bytes = 0;  // host memory that the daemon's ledger charges to this rank
  uint64_t arena_bytes = 0;
  uint64_t peak_model_bytes = 0;  // most chunk bytes in the arena at once
  uint64_t peak_workspace_bytes = 0;
  uint64_t peak_total_bytes = 0;     // largest sum of both at one time
  uint64_t model_bytes_at_peak = 0;  // chunk bytes at that time
  uint64_t model_bytes = 0;          // now
  uint64_t workspace_bytes = 0;      // now
  uint64_t host_to_device_bytes = 0;
  uint64_t device_to_host_bytes = 0;
  uint64_t activation_bytes = 0;  // of an ActivationStack, included in each of the two above
  uint64_t transfer_bytes_lower_bound = 0;  // host to device, in micro-batches that followed plans
  // Per micro-batch. Weights that are gathered once after an update are extra (Options::stage).
  uint64_t planned_transfer_bytes = 0;
  // Bytes from other ranks: gathered weights and gradients to be reduced.
  uint64_t received_bytes = 0;
  // The part of received_bytes from Options::host_ranks, which had copies of the weights.
  uint64_t received_within_host_bytes = 0;
  // The part of host_bytes for this rank's shard of those copies.
  uint64_t host_shard_bytes = 0;
  double stall_seconds = 0;
  std::vector<std::pair<std::string, double>> stall_seconds_by_cause;
  double queued_seconds = 0;  // waiting for admission, which is not a stall
  // How ranks exchange chunks: Communicator::BackendName. If chunks on devices go through host
  // memory, says why. Empty for a single rank.
  std::string ranks_exchange_by;
  // CommunicatorStats::registered_bytes of the communicator that moves this rank's device memory.
  uint64_t registered_bytes = 0;
  uint64_t chunks = 0;
  uint64_t chunk_elements = 0;
  double waste_ratio = 0;  // padding over all elements
  uint64_t plans_made = 0;
  // How often a plan was replaced because steps no longer fitted it. If steps are slower or faster,
  // the new plan uses times measured under the old one; other changes need a new sample.
  std::vector<std::pair<std::string, uint64_t>> replans_by_cause;
  bool everything_fits = false;  // the plan is empty: nothing moves during a step
  std::string plan_explanation;  // or why there is no plan
};

// The plan that training follows, and the trace that it was made from.
struct PlanInForce {
  Trace trace;
  Plan plan;
  std::vector<std::string> names;  // by chunk of the trace: the names of its parameters
};

}  // namespace geminid::zero

#endif  // GEMINID_STATISTICS_H_
