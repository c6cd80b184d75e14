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

namespace geminid::trainer {

// The position of a run: its state outside of the tensors.
struct RunPosition {
  zero::Progress progress;
  checkpoint::RunState run;
  checkpoint::Health health = checkpoint::Health::kHealthy;
};

class StateImage {
 public:
  // The image of the model's state with these parameters. `state` outlives the image.
  static absl::StatusOr<StateImage> Of(zero::ModelState* state,
                                       const std::vector<zero::Parameter>& parameters);

  uint64_t bytes() const { return bytes_; }

  // Writes this rank's shards. Called between steps.
  absl::Status Write(std::span<std::byte> image) const;
  // Writes the position. One rank does this.
  absl::Status WritePosition(const RunPosition& position, std::span<std::byte> image) const;
  // INTERNAL: the image is of another model.
  absl::StatusOr<RunPosition> ReadPosition(std::span<const std::byte> image) const;
  // Reads this rank's shards, after ReadPosition. All ranks must call it.
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
