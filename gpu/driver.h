// The CUDA driver of this process: loaded and initialised once, its errors as absl::Status.
#ifndef GEMINID_GPU_DRIVER_H_
#define GEMINID_GPU_DRIVER_H_

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/driver_api.h"
#include "gpu/nvml_api.h"

namespace geminid::gpu {

// As ProcessDriver. UNAVAILABLE if there is no driver or no GPU.
absl::StatusOr<const DriverApi*> LoadDriver();

// OK, or what went wrong in `call`: the driver's name and meaning of the error, and what to do.
//   RESOURCE_EXHAUSTED   out of device memory, or of what a launch needs
//   INVALID_ARGUMENT     an argument, a handle or an address that the driver does not take
//   UNAVAILABLE          no driver, no device, or a device that is busy or not ready
//   UNIMPLEMENTED        not supported by this device or driver
//   PERMISSION_DENIED    not permitted here
//   DATA_LOSS            the context or the device is lost (IsSticky): everything in it is
//   INTERNAL             all others, except FAILED_PRECONDITION: not initialised in this process
absl::Status ToStatus(const DriverApi& api, CUresult result, std::string_view call);

// Whether every later call of the process on this context fails, too. The process must exit, and a
// new process start.
bool IsSticky(CUresult result);
// The end of messages about sticky errors.
inline constexpr char kLostAdvice[] =
    "this process cannot use the device any more: end it and start another; the kernel's log "
    "(dmesg, Xid) and nvidia-smi say more";

// NVML's table, after nvmlInit; as LoadDriver.
absl::StatusOr<const NvmlApi*> LoadNvml();
absl::Status ToStatus(const NvmlApi& api, NvmlResult result, std::string_view call);

}  // namespace geminid::gpu

#endif  // GEMINID_GPU_DRIVER_H_
