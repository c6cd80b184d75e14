// Checks that the trainer can use a device.
#ifndef GEMINID_TRAINING_SETTINGS_DEVICE_CHECK_H_
#define GEMINID_TRAINING_SETTINGS_DEVICE_CHECK_H_

#include "absl/status/status.h"
#include "geminid/types.h"

namespace geminid::trainer {

// `wants_gpu`: --device cuda was given, so any other device is FAILED_PRECONDITION.
absl::Status CheckDevice(const DeviceDescription& device, bool wants_gpu);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SETTINGS_DEVICE_CHECK_H_
