#include "daemon/core/chunk_states.h"

#include "absl/strings/str_cat.h"

namespace geminid::core {
namespace {

std::string LegalFrom(ChunkState from) {
  std::string names;
  for (int i = 0; i < shm::kChunkStates; ++i) {
    const auto to = static_cast<ChunkState>(i);
    if (!shm::IsLegalTransition(from, to)) continue;
    absl::StrAppend(&names, names.empty() ? "" : " or ", shm::Name(to));
  }
  return names;
}

}  // namespace

absl::Status CheckTransition(const std::string& chunk_name, ChunkState from, ChunkState to) {
  if (!shm::IsValid(to)) {
    return absl::InvalidArgumentError(absl::StrCat("chunk \"", chunk_name,
                                                   "\": ", static_cast<int>(to),
                                                   " is not a chunk state; send 0 to 4"));
  }
  if (shm::IsLegalTransition(from, to)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("chunk \"", chunk_name, "\" is ", shm::Name(from), " and may not become ",
                   shm::Name(to), "; from here it may become ", LegalFrom(from)));
}

TensorStates::TensorStates(uint32_t tensors) : states_(tensors, ChunkState::kFree) {
  counts_[static_cast<int>(ChunkState::kFree)] = tensors;
}

absl::Status TensorStates::Transition(const std::string& chunk_name, uint32_t tensor,
                                      ChunkState to) {
  if (tensor >= states_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("chunk \"", chunk_name, "\" has ",
                                                   states_.size(), " tensors; there is no tensor ",
                                                   tensor));
  }
  const ChunkState from = states_[tensor];
  if (absl::Status status = CheckTransition(chunk_name, from, to); !status.ok()) return status;
  states_[tensor] = to;
  --counts_[static_cast<int>(from)];
  ++counts_[static_cast<int>(to)];
  return absl::OkStatus();
}

bool TensorStates::can_release() const {
  return Count(ChunkState::kHold) + Count(ChunkState::kHoldAfterBackward) == tensors();
}

bool TensorStates::can_reduce() const {
  return tensors() > 0 && Count(ChunkState::kReadyForReduce) == tensors();
}

ChunkState TensorStates::Rollup() const {
  if (Count(ChunkState::kCompute) > 0) return ChunkState::kCompute;
  for (int i = 0; i < shm::kChunkStates; ++i) {
    if (counts_[i] == tensors()) return static_cast<ChunkState>(i);
  }
  const uint32_t in_backward =
      Count(ChunkState::kHoldAfterBackward) + Count(ChunkState::kReadyForReduce);
  return in_backward > 0 ? ChunkState::kHoldAfterBackward : ChunkState::kHold;
}

}  // namespace geminid::core
