#ifndef GEMINID_DAEMON_PLANNER_TIERS_OCCUPANCY_H_
#define GEMINID_DAEMON_PLANNER_TIERS_OCCUPANCY_H_

#include <cstdint>
#include <vector>

#include "daemon/planner/tiers/tier_plan.h"

// The bytes on the device and on the host for given decisions.

namespace geminid::planner {

struct Occupancy {
  std::vector<std::uint64_t> device_activations;  // per moment
  // The rest is the same at all moments.
  std::uint64_t host_activations = 0;  // each is copied there and back
  std::uint64_t device_state = 0;      // weights' home, remainder, moments
  std::uint64_t device_gradients = 0;  // of chunks updated on the device
  std::uint64_t device_staging = 0;    // of streamed state, spares

  std::uint64_t device_constant() const { return device_state + device_gradients + device_staging; }
};
Occupancy ComputeOccupancy(const TierProblem& problem, const Decisions& decisions);

// The indices of the offloaded activations, in the order of the forward pass. The last
// decisions.activation_places of them stay on the device.
std::vector<std::size_t> OffloadedOrder(const TierProblem& problem, const Decisions& decisions);

// The bytes of one place for offloaded activations; 0 if there are none.
std::uint64_t ActivationPlaceBytes(const TierProblem& problem, const Decisions& decisions);

// How long the computation waits for copies of offloaded activations. An activation leaves its
// place before another one is produced there, and returns when that one has been consumed. Copies
// of one direction follow each other. Moments take the trace's times. O(A log A) for A activations.
double OffloadWaitSeconds(const TierProblem& problem, const Decisions& decisions);

// Bytes of the chunks that each moment uses, rounded up to their extents.
std::vector<std::uint64_t> UsedBytes(const TierProblem& problem);

// The margin of the device is the arena less workspace, activations and the chunks of the fullest
// moment. Returns the bytes of state on the device that take `share` of it.
std::uint64_t DeviceStateLimit(const TierProblem& problem, const Decisions& decisions,
                               double share);

// Bytes of state and gradient of a chunk that is updated on the device.
inline std::uint64_t DeviceStateBytes(const OptimizerItem& item) {
  return item.state_bytes() + item.gradient_bytes;
}

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_TIERS_OCCUPANCY_H_
