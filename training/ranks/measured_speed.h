// Measures, in some milliseconds, how fast a rank multiplies matrices and loads weights.
#ifndef GEMINID_TRAINING_RANKS_MEASURED_SPEED_H_
#define GEMINID_TRAINING_RANKS_MEASURED_SPEED_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "geminid/zero.h"
#include "training/models/model_config.h"
#include "training/nn/blocks.h"
#include "training/ranks/model_place.h"

namespace geminid::trainer {

// The place in which a rank's model computes.
struct ComputePlace {
  const ModelPlace& place;
  zero::Workspace& workspace;
  size_t threads = 1;  // on the host
};

struct MeasuredSpeed {
  double operations_per_second = 0;
  double link_bytes_per_second = 0;  // to the device
};

// Measures a product of the MLP's kind in the arithmetic of `type`, and a copy. On the host it uses
// the clock and the process's own memory, and multiplies the result by the number of threads. On a
// GPU it uses the device's events and the workspace, of which it takes no more than a micro-batch
// of `shape` will: RESOURCE_EXHAUSTED if there is less.
absl::StatusOr<MeasuredSpeed> MeasureSpeed(const ModelConfig& config, zero::DataType type,
                                           const MicroBatchShape& shape,
                                           const ComputePlace& compute);

// The same on the host alone.
absl::StatusOr<MeasuredSpeed> MeasureHostSpeed(const ModelConfig& config, zero::DataType type,
                                               size_t threads);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RANKS_MEASURED_SPEED_H_
