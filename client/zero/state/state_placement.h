// Chooses the chunks whose optimizer state lies on the device: a prefix of the order in which the
// next forward pass needs them. The gradients of these chunks come last, so nothing else would hide
// their transfers. Also chooses the chunks that the device updates while their state lies on the
// host. Pure.
#ifndef GEMINID_CLIENT_ZERO_STATE_STATE_PLACEMENT_H_
#define GEMINID_CLIENT_ZERO_STATE_STATE_PLACEMENT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/zero/basics/layout.h"
#include "client/zero/state/places_ahead.h"
#include "geminid/plan.h"
#include "geminid/zero.h"

namespace geminid::zero {

struct StatePlacementProblem {
  Trace trace;                        // with all state on the host
  std::vector<uint32_t> order;        // chunks that may move, each once, the first needed first
  std::vector<uint64_t> state_bytes;  // by chunk: the arena bytes of its state
  std::vector<uint32_t> gradients{};  // by chunk: the chunk of its gradient; empty: itself
  uint64_t spare_bytes = 0;           // taken once, if any trained state is on the device
};

// The arena bytes of the state of the order's first `count` chunks.
uint64_t StateBytes(const StatePlacementProblem& problem, size_t count);

// The arena's headroom at its peak. The peak counts the workspace, the chunks in use, and the
// gradients that leave during the next `drain_moments`. 0 if there is no headroom.
uint64_t MarginBytes(const Trace& trace, uint32_t drain_moments);

// The number of chunks, from the start of the order, that fit `budget_bytes` together.
size_t CountThatFits(const StatePlacementProblem& problem, uint64_t budget_bytes);

// Whether all state that may move, every gathered chunk and the largest workspace fit at once. If
// they do, state on the device never crosses the link.
bool EverythingFits(const StatePlacementProblem& problem);

// The trace with the state of the first `count` chunks on the device: the arena is smaller, and
// these chunks are loaded and reduced without transfers. `count` must fit the arena.
Trace WithStateOnDevice(const StatePlacementProblem& problem, size_t count);

// The counts worth planning for, ascending, 0 first: quarters of `most`.
std::vector<size_t> CandidateCounts(size_t most);

// The share of the margin for state with StatePlacement::kAuto. The rest is for weights that stay,
// and for activations that grow.
inline constexpr double kAutoStateShare = 0.5;

// What a plan costs per step.
struct StepCost {
  double seconds = 0;
  uint64_t moved_bytes = 0;
};
// Whether a plan is better than the best one so far. The plan is better if its step is shorter by
// more than the noise of the measurements. It is also better if its step is not longer and moves
// fewer bytes.
bool IsBetter(const StepCost& plan, const StepCost& best);
bool IsBetter(const Plan& plan, const Plan& best);

// --- state that is streamed through the device for its update ------------------------------------

// By granule, with StatePlacement::kStreamed: whether the device updates state that lies on the
// host. The host updates Muon's matrices, because they cannot be updated slice by slice.
std::vector<bool> StreamedGranules(const Layout& layout);

// Places in the arena for slices of granules: one slice arrives, one is updated, one leaves.
inline constexpr size_t kStreamedPlaces = kPlacesAhead;

// The number of elements in a slice of a granule, if each takes `element_bytes` of a place. All
// places together take at most a sixteenth of the arena. A slice has at most 2 Mi elements, since a
// place is in use for as long as a copy takes. It has at least 1024, since each copy needs a
// ticket.
uint64_t StreamedElements(uint64_t granule_elements, uint64_t element_bytes, uint64_t arena_bytes);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STATE_STATE_PLACEMENT_H_
