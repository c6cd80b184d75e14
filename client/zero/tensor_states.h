// The Gemini state of each tensor of a chunk, and what they add up to. Pure.
#ifndef GEMINID_CLIENT_ZERO_TENSOR_STATES_H_
#define GEMINID_CLIENT_ZERO_TENSOR_STATES_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/shm/chunk_state.h"

namespace geminid::zero {

class TensorStates {
 public:
  explicit TensorStates(size_t tensors) : states_(tensors, shm::ChunkState::kFree) {
    counts_[static_cast<int>(shm::ChunkState::kFree)] = tensors;
  }

  // FAILED_PRECONDITION naming `tensor_name` and both states unless the step is legal.
  absl::Status Move(size_t tensor, shm::ChunkState to, const std::string& tensor_name) {
    const shm::ChunkState from = states_[tensor];
    if (!shm::IsLegalTransition(from, to)) {
      return absl::FailedPreconditionError(
          absl::StrCat("parameter '", tensor_name, "' cannot go from ", shm::Name(from), " to ",
                       shm::Name(to), "; check the order of Use, GradientWritten and Finish"));
    }
    counts_[static_cast<int>(from)] -= 1;
    counts_[static_cast<int>(to)] += 1;
    states_[tensor] = to;
    return absl::OkStatus();
  }

  shm::ChunkState state(size_t tensor) const { return states_[tensor]; }
  size_t size() const { return states_.size(); }
  size_t Count(shm::ChunkState state) const { return counts_[static_cast<int>(state)]; }

  bool CanReduce() const { return Count(shm::ChunkState::kReadyForReduce) == size(); }

 private:
  std::vector<shm::ChunkState> states_;
  std::array<size_t, shm::kChunkStates> counts_ = {};
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_TENSOR_STATES_H_
