#include "base/exit_status.h"

#include <cerrno>

#include "base/system_error.h"

namespace geminid::base {

ExitCode ExitCodeOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kAlreadyExists:
      return kExitUsage;
    case absl::StatusCode::kUnavailable:
      return kExitUnavailable;
    case absl::StatusCode::kNotFound:
      return kExitNotFound;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kExitPermission;
    case absl::StatusCode::kDeadlineExceeded:
      return kExitDeadline;
    case absl::StatusCode::kResourceExhausted:
      return kExitResourceExhausted;
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
      return kExitAborted;
    case absl::StatusCode::kFailedPrecondition:
      return kExitPrecondition;
    default:
      return kExitFailed;
  }
}

DaemonExitCode DaemonExitCodeOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return kDaemonExitOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kNotFound:
      return kDaemonExitConfig;
    case absl::StatusCode::kUnavailable:
      return kDaemonExitUnavailable;
    case absl::StatusCode::kPermissionDenied:
      return kDaemonExitPermission;
    case absl::StatusCode::kResourceExhausted:
      return kDaemonExitResources;
    default:
      return kDaemonExitInternal;
  }
}

absl::Status FinishOutput(std::ostream& out) {
  if (out.good()) errno = 0;  // else errno may still be that of the failed write
  out.flush();
  if (out.good() || errno == EPIPE) return absl::OkStatus();
  return SystemError(errno == 0 ? EIO : errno, "write",
                     "standard output: a part of the output was lost");
}

}  // namespace geminid::base
