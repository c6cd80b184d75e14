// The state of a model's training as bytes in memory that all ranks of a host share. The image
// holds whole tensors, of which each rank writes and reads its shards. It does not depend on the
// number of ranks.
#ifndef GEMINID_TRAINING_SCALING_STATE_IMAGE_H_
#define GEMINID_TRAINING_SCALING_STATE_IMAGE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/checkpoint.h"
#include "geminid/zero.h"
#include "training/launch/handover_memory.h"
#include "training/scaling/state_ranges.h"

namespace geminid::trainer {

// The position of a run: its state outside of the tensors.
struct RunPosition {
  zero::Progress progress;
  checkpoint::RunState run;
  checkpoint::Health health = checkpoint::Health::kHealthy;
};

class StateImage {
 public:
  // Elements of one array, some MiB at most.
  struct ArraySlice {
    size_t array = 0;
    uint64_t first = 0;
    uint64_t elements = 0;
  };

  // Of the model's state, which outlives it, with these parameters.
  static absl::StatusOr<StateImage> Of(zero::ModelState* state,
                                       const std::vector<zero::Parameter>& parameters);

  uint64_t bytes() const { return bytes_; }

  // Writes this rank's shards. Called between steps.
  absl::Status Write(std::span<std::byte> image) const;
  // Writes the position. One rank does this.
  absl::Status WritePosition(const RunPosition& position, std::span<std::byte> image) const;
  // Of an image, or of its first position_bytes() alone. INTERNAL: it is another model's.
  absl::StatusOr<RunPosition> ReadPosition(std::span<const std::byte> image) const;
  uint64_t position_bytes() const;
  // This rank's shards, of an image that has been read from so far. All ranks must.
  absl::Status Read(std::span<const std::byte> image) const;

  // --- an image of which each of several hosts has a part ---

  std::vector<StateRange> Shards() const;  // of this rank
  // All arrays of these ranges, in their order.
  std::vector<ArraySlice> PiecesOf(const std::vector<StateRange>& ranges) const;
  uint64_t BytesOf(const ArraySlice& piece) const;
  // Where it lies. The image is that large.
  std::span<std::byte> In(std::span<std::byte> image, const ArraySlice& piece) const;
  // Of this rank's shards, as the image has them.
  absl::Status Load(const ArraySlice& piece, std::span<std::byte> bytes) const;
  absl::Status Store(const ArraySlice& piece, std::span<const std::byte> bytes) const;

  // The image of a host that has these ranges alone: it ends with a table of them. Without a table
  // it has all.
  uint64_t BytesWithTable(const std::vector<StateRange>& ranges) const;
  std::vector<StatePart> PartsWithTable(const std::vector<StateRange>& ranges) const;
  void WriteTable(const std::vector<StateRange>& ranges, std::span<std::byte> image) const;
  // What the image has. INTERNAL: no table of this model's.
  absl::StatusOr<std::vector<StateRange>> ReadTable(std::span<const std::byte> image) const;

 private:
  struct Array {
    zero::ParameterId id;
    zero::StateKind kind;
    zero::DataType type;
    uint64_t elements;
    uint64_t place;
  };
  static std::vector<StateRange> WholeOf(const std::vector<Array>& arrays);

  StateImage(zero::ModelState* state, uint64_t tensor_state_bytes)
      : state_(state), tensor_state_bytes_(tensor_state_bytes) {}
  uint64_t Fingerprint() const;

  zero::ModelState* state_;
  uint64_t tensor_state_bytes_;
  std::vector<Array> arrays_;
  uint64_t bytes_ = 0;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SCALING_STATE_IMAGE_H_
