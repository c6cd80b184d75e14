// A handover's state as pieces for another host, followed by a checksum.
#ifndef GEMINID_TRAINING_LAUNCH_STATE_PIECES_H_
#define GEMINID_TRAINING_LAUNCH_STATE_PIECES_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mapping.h"
#include "training/launch/handover_memory.h"

namespace geminid::trainer {

inline constexpr size_t kPieceBytes = size_t{256} << 10;
inline constexpr size_t kChecksumBytes = 4;  // CRC-32C, little-endian, after the state

// The bytes of all pieces together.
inline uint64_t BytesOnTheWay(const Handover& handover) { return handover.bytes + kChecksumBytes; }

class StateReader {
 public:
  // Reads complete state, which must outlive the reader.
  static absl::StatusOr<StateReader> Of(const HandoverMemory& memory);
  // Returns an empty string after the last piece.
  std::string Next();

 private:
  explicit StateReader(base::Mapping mapping) : mapping_(std::move(mapping)) {}

  base::Mapping mapping_;
  uint64_t next_ = 0;
  uint32_t checksum_ = 0;
};

class StateWriter {
 public:
  // Writes into `memory`, which must have the room and outlive the writer.
  static absl::StatusOr<StateWriter> Of(HandoverMemory* memory, const Handover& handover,
                                        uint64_t available_bytes);
  // The last piece completes the handover. DATA_LOSS: the checksum is wrong.
  absl::Status Add(const std::string& piece);

 private:
  StateWriter(HandoverMemory* memory, base::Mapping mapping)
      : memory_(memory), mapping_(std::move(mapping)) {}

  HandoverMemory* memory_;
  base::Mapping mapping_;
  uint64_t next_ = 0;
  uint32_t checksum_ = 0;
  std::string sent_checksum_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_STATE_PIECES_H_
