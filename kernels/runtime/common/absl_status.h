// For callers that return a kernel's status as absl::Status. The kernels do without Abseil.
#ifndef GEMINID_KERNELS_RUNTIME_COMMON_ABSL_STATUS_H_
#define GEMINID_KERNELS_RUNTIME_COMMON_ABSL_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/runtime/common/status.h"

namespace geminid::kernels {

// INTERNAL, naming `kernel`: invalid arguments are a bug of the caller.
inline absl::Status FromKernel(Status status, const char* kernel) {
  if (status == Status::kOk) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the kernel ", kernel, " refused its arguments: ", StatusName(status)));
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_RUNTIME_COMMON_ABSL_STATUS_H_
