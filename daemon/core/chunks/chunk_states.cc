#include "daemon/core/chunks/chunk_states.h"

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

}  // namespace geminid::core
