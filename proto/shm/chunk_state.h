// The states of a tensor within a chunk, and the legal transitions between them.
//
//   FREE --alloc--> HOLD <--use/release--> COMPUTE --backward done--> HOLD_AFTER_BACKWARD
//                    ^                                                     |
//                    +--reduced-- READY_FOR_REDUCE <-----grad written------+
//
// The nine legal transitions are those of Gemini: FREE to HOLD and COMPUTE; HOLD to FREE and
// COMPUTE; COMPUTE to HOLD and HOLD_AFTER_BACKWARD; HOLD_AFTER_BACKWARD to COMPUTE and
// READY_FOR_REDUCE; READY_FOR_REDUCE to HOLD. Every other request is an error, never ignored.
#ifndef GEMINID_PROTO_SHM_CHUNK_STATE_H_
#define GEMINID_PROTO_SHM_CHUNK_STATE_H_

#include <cstdint>

namespace geminid::shm {

enum class ChunkState : uint8_t {
  kFree = 0,               // no payload; the storage may be reused
  kHold = 1,               // valid, and no operator uses it: may move
  kCompute = 2,            // an operator uses it on the device: may not move
  kHoldAfterBackward = 3,  // its backward is done, its gradient is not written yet
  kReadyForReduce = 4,     // its gradient is written
};
inline constexpr int kChunkStates = 5;

constexpr bool IsValid(ChunkState state) { return static_cast<int>(state) < kChunkStates; }

constexpr bool IsLegalTransition(ChunkState from, ChunkState to) {
  switch (from) {
    case ChunkState::kFree:
      return to == ChunkState::kHold || to == ChunkState::kCompute;
    case ChunkState::kHold:
      return to == ChunkState::kFree || to == ChunkState::kCompute;
    case ChunkState::kCompute:
      return to == ChunkState::kHold || to == ChunkState::kHoldAfterBackward;
    case ChunkState::kHoldAfterBackward:
      return to == ChunkState::kCompute || to == ChunkState::kReadyForReduce;
    case ChunkState::kReadyForReduce:
      return to == ChunkState::kHold;
  }
  return false;
}

constexpr const char* Name(ChunkState state) {
  switch (state) {
    case ChunkState::kFree:
      return "FREE";
    case ChunkState::kHold:
      return "HOLD";
    case ChunkState::kCompute:
      return "COMPUTE";
    case ChunkState::kHoldAfterBackward:
      return "HOLD_AFTER_BACKWARD";
    case ChunkState::kReadyForReduce:
      return "READY_FOR_REDUCE";
  }
  return "INVALID";
}

}  // namespace geminid::shm

#endif  // GEMINID_PROTO_SHM_CHUNK_STATE_H_
