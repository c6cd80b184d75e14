// What an engine says of its memory, its transfers and its plan.
#ifndef GEMINID_STATISTICS_H_
#define GEMINID_STATISTICS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "geminid/plan.h"

namespace geminid::zero {

// Everything the engine can say in numbers; all bytes are this rank's.
struct Statistics {
  uint64_t parameters = 0;
  uint64_t model_state_bytes = 0;  // weights, remainders and moments of this rank
  // The part of the arena that state takes, with its gradients and spare extents, the sums of
  // gradients of Stage::kState, the places of StatePlacement::kStreamed and of an ActivationStack.
  uint64_t device_state_bytes = 0;
  uint64_t activation_place_bytes = 0;  // of an ActivationStack or an ActivationStore
  uint64_t state_chunks_on_device = 0;
  uint64_t state_chunks_streamed = 0;  // on the host, and updated by the device
  // Of state on disk: of this rank's files, and what went to and from them. A successor
  // counts on from what was written before it.
  uint64_t state_disk_bytes = 0;
  uint64_t disk_read_bytes = 0;
  uint64_t disk_written_bytes = 0;
  std::string state_disk;   // in words: with kAuto how much and why, and how; empty: no folders
  uint64_t host_bytes = 0;  // host memory the daemon's ledger charges to this rank
  uint64_t arena_bytes = 0;
  uint64_t peak_model_bytes = 0;  // most chunk bytes in the arena at once
  uint64_t peak_workspace_bytes = 0;
  uint64_t peak_total_bytes = 0;     // most of both together at one time
  uint64_t model_bytes_at_peak = 0;  // chunk bytes at that time
  uint64_t model_bytes = 0;          // now
  uint64_t workspace_bytes = 0;      // now
  uint64_t host_to_device_bytes = 0;
  uint64_t device_to_host_bytes = 0;
  uint64_t activation_bytes = 0;  // of an ActivationStack, in each of the two above
  uint64_t transfer_bytes_lower_bound = 0;  // host to device, of micro-batches that followed plans
  // Per micro-batch. What is gathered once after an update comes on top (Options::stage).
  uint64_t planned_transfer_bytes = 0;
  // From other ranks: weights that were gathered and gradients that were added up.
  uint64_t received_bytes = 0;
  // The part of received_bytes that came from Options::host_ranks, which had the weights already.
  uint64_t received_within_host_bytes = 0;
  // The part of host_bytes that holds this rank's part of the host's weights for that.
  uint64_t host_shard_bytes = 0;
  double stall_seconds = 0;
  std::vector<std::pair<std::string, double>> stall_seconds_by_cause;
  double queued_seconds = 0;  // waited to be admitted, which is no stall
  // How ranks exchange chunks: Communicator::BackendName. Where chunks are on devices and go
  // through host memory, it says why. Empty for one rank.
  std::string ranks_exchange_by;
  // Of this rank's memory, CommunicatorStats::registered_bytes of what moves it between devices.
  uint64_t registered_bytes = 0;
  uint64_t chunks = 0;
  uint64_t chunk_elements = 0;
  double waste_ratio = 0;  // padding over all elements
  uint64_t plans_made = 0;
  // How often a new plan was made because the steps no longer fitted the old one. Slower or faster
  // steps are planned for from the times measured under the old plan, other changes from a sample.
  std::vector<std::pair<std::string, uint64_t>> replans_by_cause;
  bool everything_fits = false;  // the plan is empty: nothing moves during a step
  std::string plan_explanation;  // or why there is no plan
};

// The plan that training follows, and the trace that it was made from.
struct PlanInForce {
  Trace trace;
  Plan plan;
  std::vector<std::string> names;  // of the trace's chunks: the parameters in each
};

}  // namespace geminid::zero

#endif  // GEMINID_STATISTICS_H_
