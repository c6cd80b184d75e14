// The status of a kernel that was launched on a GPU.
#ifndef GEMINID_TRAINING_NN_GPU_LAUNCH_H_
#define GEMINID_TRAINING_NN_GPU_LAUNCH_H_

#include "absl/status/status.h"
#include "kernels/runtime/common/status.h"

namespace geminid::trainer {

// UNAVAILABLE, or DATA_LOSS if the GPU is lost: the driver did not take the kernel. INTERNAL: the
// kernel refused its arguments.
absl::Status Launched(kernels::Status status, const char* kernel);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_GPU_LAUNCH_H_
