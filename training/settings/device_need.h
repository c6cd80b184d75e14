// Computes the device memory that an error recommends when a run had too little.
#ifndef GEMINID_TRAINING_SETTINGS_DEVICE_NEED_H_
#define GEMINID_TRAINING_SETTINGS_DEVICE_NEED_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// A size of --device-memory with which every rank trains (forecast::TrainerDeviceBytes), with the
// activations of the options; kAuto can recompute them. With tensor parallelism it has room for all
// of a rank's weights and gradients.
uint64_t EnoughDeviceBytes(const TrainOptions& options, int world_size, size_t threads);

// If a device arena was too small (RESOURCE_EXHAUSTED), adds advice to the message. If activations
// are to be kept, the advice also has the need without that. Other statuses stay as they are.
absl::Status WithDeviceAdvice(const absl::Status& status, const TrainOptions& options,
                              int world_size, size_t threads);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SETTINGS_DEVICE_NEED_H_
