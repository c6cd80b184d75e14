// Which chunks keep their optimizer state on the device: a prefix of the order in which the next
// forward pass needs them. Those are the chunks whose gradients are the last to come, so that
// theirs are the transfers that nothing hides. And which have it on the host and are updated by the
// device. Pure.
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
  std::vector<uint32_t> order;        // what may move, each once, the first needed first
  std::vector<uint64_t> state_bytes;  // by chunk: what its state takes of the arena
  std::vector<uint32_t> gradients{};  // by chunk: which one its gradient is in; empty: itself
  uint64_t spare_bytes = 0;           // taken once, beside any state that is trained
};

// What the first `count` chunks of the order take of the arena.
uint64_t StateBytes(const StatePlacementProblem& problem, size_t count);

// The arena less its fullest moment: workspace, the chunks used, and the gradients on their way out
// during the next `drain_moments`. 0 if there is nothing to spare.
uint64_t MarginBytes(const Trace& trace, uint32_t drain_moments);

// How many chunks of the order fit `budget_bytes` together.
size_t CountThatFits(const StatePlacementProblem& problem, uint64_t budget_bytes);

// There is room for all state that may move, every gathered chunk and the largest workspace at
// once: with that state on the device nothing of it needs to cross the link.
bool EverythingFits(const StatePlacementProblem& problem);

// The trace with the state of the first `count` chunks on the device: the arena is smaller, and
// these chunks are loaded and reduced without transfers. `count` must fit the arena.
Trace WithStateOnDevice(const StatePlacementProblem& problem, size_t count);

// The counts worth planning for, ascending, 0 first: quarters of `most`.
std::vector<size_t> CandidateCounts(size_t most);

// Of the margin, what state may take with StatePlacement::kAuto: the rest is for weights that stay,
// and for activations that grow.
inline constexpr double kAutoStateShare = 0.5;

// What a plan costs per step.
struct StepCost {
  double seconds = 0;
  uint64_t moved_bytes = 0;
};
// Whether a plan is better than the best so far: a step shorter by more than the noise of what was
// measured, else one not longer that moves fewer bytes.
bool IsBetter(const StepCost& plan, const StepCost& best);
bool IsBetter(const Plan& plan, const Plan& best);

// --- state that is streamed through the device for its update ------------------------------------

// With StatePlacement::kStreamed, by granule: whether the device updates it while its state lies on
// the host. Muon's matrices cannot be updated slice by slice: the host updates them.
std::vector<bool> StreamedGranules(const Layout& layout);

// Places of the arena that slices of granules pass through: one comes, one is updated, one leaves.
inline constexpr size_t kStreamedPlaces = kPlacesAhead;

// How many elements a slice of a granule has where each takes `element_bytes` of a place: as many
// as keep the places within a sixteenth of the arena. Not more than 2 Mi, since a place is in use
// for as long as a copy takes, and not fewer than 1024, since each copy needs a ticket.
uint64_t StreamedElements(uint64_t granule_elements, uint64_t element_bytes, uint64_t arena_bytes);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STATE_STATE_PLACEMENT_H_
