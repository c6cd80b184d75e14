// Measures for some milliseconds how fast a rank multiplies matrices and loads weights.
#ifndef GEMINID_TRAINING_RANKS_MEASURED_SPEED_H_
#define GEMINID_TRAINING_RANKS_MEASURED_SPEED_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "geminid/zero.h"
#include "training/models/model_config.h"
#include "training/nn/blocks.h"
#include "training/ranks/model_place.h"

namespace geminid::trainer {

// What a rank's model computes with.
struct ComputePlace {
  const ModelPlace& place;
  zero::Workspace& workspace;
  size_t threads = 1;  // on the host
};

struct MeasuredSpeed {
  double operations_per_second = 0;
  double link_bytes_per_second = 0;  // to the device
};

// Of a product such as the MLP's, in the arithmetic of `type`, and of a copy. On the host by the
// clock and in its own memory, of which the device's is part, times the threads; on a GPU by the
// device's events and in the workspace, where no more is taken than a micro-batch of `shape` will
// take: RESOURCE_EXHAUSTED if there is not so much.
absl::StatusOr<MeasuredSpeed> MeasureSpeed(const ModelConfig& config, zero::DataType type,
                                           const MicroBatchShape& shape,
                                           const ComputePlace& compute);

// The same on the host alone.
absl::StatusOr<MeasuredSpeed> MeasureHostSpeed(const ModelConfig& config, zero::DataType type,
                                               size_t threads);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RANKS_MEASURED_SPEED_H_
