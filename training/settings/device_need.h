// Computes the device memory that an error recommends when a run had too little.
#ifndef GEMINID_TRAINING_SETTINGS_DEVICE_NEED_H_
#define GEMINID_TRAINING_SETTINGS_DEVICE_NEED_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// A size of --device-memory with which every rank trains (forecast::TrainerDeviceBytes), with its
// activations as the options say; kAuto can recompute them. Where layers are shared by tensor
// parallelism, with room for all of a rank's weights and gradients.
uint64_t EnoughDeviceBytes(const TrainOptions& options, int world_size, size_t threads);

// RESOURCE_EXHAUSTED of a device arena that was too small gets the words of what to do; where
// activations are to be kept, also what the run takes without that. Every other status stays as it
// is.
absl::Status WithDeviceAdvice(const absl::Status& status, const TrainOptions& options,
                              int world_size, size_t threads);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SETTINGS_DEVICE_NEED_H_
