// Gemini's states: which step is legal, and how the states of a chunk's tensors roll up.
#ifndef GEMINID_DAEMON_CORE_CHUNK_STATES_H_
#define GEMINID_DAEMON_CORE_CHUNK_STATES_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/shm/chunk_state.h"

namespace geminid::core {

using shm::ChunkState;

// OK for the nine legal transitions. Otherwise FAILED_PRECONDITION that names the chunk, both
// states and what would be legal; INVALID_ARGUMENT when `to` is no state at all.
absl::Status CheckTransition(const std::string& chunk_name, ChunkState from, ChunkState to);

// The states of the tensors of one chunk, with a count per state. Not thread-safe; every operation
// is constant time.
class TensorStates {
 public:
  // All tensors begin FREE.
  explicit TensorStates(uint32_t tensors);

  // As CheckTransition, and INVALID_ARGUMENT when there is no such tensor. Nothing changes on
  // error.
  absl::Status Transition(const std::string& chunk_name, uint32_t tensor, ChunkState to);

  ChunkState state(uint32_t tensor) const { return states_[tensor]; }
  uint32_t Count(ChunkState state) const { return counts_[static_cast<int>(state)]; }
  uint32_t tensors() const { return static_cast<uint32_t>(states_.size()); }

  // The gathered copy may go: every tensor is HOLD or HOLD_AFTER_BACKWARD.
  bool can_release() const;
  // The chunk may be reduced: every tensor is READY_FOR_REDUCE.
  bool can_reduce() const;
  // What the chunk as a whole is. COMPUTE as soon as one tensor is; a state that all tensors share;
  // HOLD_AFTER_BACKWARD while some gradients are still to be written; else HOLD.
  ChunkState Rollup() const;

 private:
  std::vector<ChunkState> states_;
  std::array<uint32_t, shm::kChunkStates> counts_{};
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_CHUNK_STATES_H_
