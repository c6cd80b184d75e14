#include "training/launch/state_pieces.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "base/status_macros.h"
#include "proto/shm/crc32c.h"

namespace geminid::trainer {
namespace {

std::string Bytes(uint32_t checksum) {
  std::string bytes;
  for (size_t i = 0; i < kChecksumBytes; ++i) {
    bytes.push_back(static_cast<char>(checksum >> (8 * i)));
  }
  return bytes;
}

}  // namespace

absl::StatusOr<StateReader> StateReader::Of(const HandoverMemory& memory) {
  const std::optional<Handover> there = memory.complete();
  if (!there.has_value()) return absl::FailedPreconditionError("there is no state to send");
  GEMINID_ASSIGN_OR_RETURN(base::Mapping mapping, memory.Map(there->bytes));
  return StateReader(std::move(mapping));
}

std::string StateReader::Next() {
  const std::span<const std::byte> state = HandoverMemory::StateIn(mapping_);
  if (next_ > state.size()) return "";
  if (next_ == state.size()) {
    next_ += kChecksumBytes;
    return Bytes(checksum_);
  }
  const size_t bytes = std::min<size_t>(kPieceBytes, state.size() - next_);
  checksum_ = shm::Crc32c(&state[next_], bytes, checksum_);
  std::string piece(reinterpret_cast<const char*>(&state[next_]), bytes);
  next_ += bytes;
  return piece;
}

absl::StatusOr<StateWriter> StateWriter::Of(HandoverMemory* memory, const Handover& handover,
                                            uint64_t available_bytes) {
  GEMINID_RETURN_IF_ERROR(memory->Arrive(handover, available_bytes));
  GEMINID_ASSIGN_OR_RETURN(base::Mapping mapping, memory->Map(handover.bytes));
  return StateWriter(memory, std::move(mapping));
}

absl::Status StateWriter::Add(const std::string& piece) {
  const std::span<std::byte> state = HandoverMemory::StateIn(mapping_);
  const size_t bytes = std::min<size_t>(piece.size(), state.size() - next_);
  if (bytes > 0) {
    std::memcpy(&state[next_], piece.data(), bytes);
    checksum_ = shm::Crc32c(&state[next_], bytes, checksum_);
    next_ += bytes;
  }
  sent_checksum_ += piece.substr(bytes);
  if (sent_checksum_.size() < kChecksumBytes) return absl::OkStatus();
  if (sent_checksum_ != Bytes(checksum_)) {
    return absl::DataLossError("the state was altered in transit: its checksum differs");
  }
  memory_->Complete();
  return absl::OkStatus();
}

}  // namespace geminid::trainer
