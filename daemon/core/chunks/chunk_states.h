// The states of a chunk during a training step, as in the memory manager Gemini: which transitions
// are legal, and the text of the error for the others.
#ifndef GEMINID_DAEMON_CORE_CHUNKS_CHUNK_STATES_H_
#define GEMINID_DAEMON_CORE_CHUNKS_CHUNK_STATES_H_

#include <string>

#include "absl/status/status.h"
#include "proto/shm/chunk_state.h"

namespace geminid::core {

using shm::ChunkState;

// OK for the nine legal transitions. Otherwise FAILED_PRECONDITION that names the chunk, both
// states and what would be legal; INVALID_ARGUMENT when `to` is no state at all.
absl::Status CheckTransition(const std::string& chunk_name, ChunkState from, ChunkState to);

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_CHUNKS_CHUNK_STATES_H_
