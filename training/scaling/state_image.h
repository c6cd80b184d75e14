// The state of a model's training as bytes in memory that all ranks of a host share: whole tensors,
// of which each rank writes and reads its shards. It does not depend on the number of ranks.
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

namespace geminid::trainer {

// Where a run stands, beside its tensors.
struct RunPosition {
  zero::Progress progress;
  checkpoint::RunState run;
  checkpoint::Health health = checkpoint::Health::kHealthy;
};

class StateImage {
 public:
  // Of the model's state, which outlives it, with these parameters.
  static absl::StatusOr<StateImage> Of(zero::ModelState* state,
                                       const std::vector<zero::Parameter>& parameters);

  uint64_t bytes() const { return bytes_; }

  // This rank's shards. Between steps.
  absl::Status Write(std::span<std::byte> image) const;
  // Of one rank: the position.
  absl::Status WritePosition(const RunPosition& position, std::span<std::byte> image) const;
  // INTERNAL: the image is another model's.
  absl::StatusOr<RunPosition> ReadPosition(std::span<const std::byte> image) const;
  // This rank's shards, of an image that has been read from so far. All ranks must.
  absl::Status Read(std::span<const std::byte> image) const;

 private:
  struct Array {
    zero::ParameterId id;
    zero::StateKind kind;
    zero::DataType type;
    uint64_t elements;
    uint64_t place;
  };

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
