// Which devices the trainer can use.
#ifndef GEMINID_TOOLS_TRAINER_DEVICE_CHECK_H_
#define GEMINID_TOOLS_TRAINER_DEVICE_CHECK_H_

#include "absl/status/status.h"
#include "geminid/types.h"

namespace geminid::trainer {

// UNIMPLEMENTED for a device whose memory the trainer's compute cannot reach.
absl::Status CheckDevice(const DeviceDescription& device);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_DEVICE_CHECK_H_
