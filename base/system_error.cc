#include "base/system_error.h"

#include <system_error>

#include "absl/strings/str_cat.h"

namespace geminid::base {
namespace {

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case ENOENT:
      return absl::StatusCode::kNotFound;
    case ENOMEM:
    case ENOSPC:
    case EMFILE:
    case ENFILE:
    case EDQUOT:
    case ETOOMANYREFS:
      return absl::StatusCode::kResourceExhausted;
    case ELOOP:
    case ENAMETOOLONG:
    case ENOTDIR:
      return absl::StatusCode::kInvalidArgument;
    case EADDRINUSE:
    case EBUSY:
    case ECONNREFUSED:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status SystemError(int error, const std::string& call, const std::string& detail) {
  // Not strerror, which may share one buffer between threads.
  const std::string words = std::generic_category().message(error);
  return absl::Status(CodeOf(error), absl::StrCat(detail, ": ", call, " failed: ", words));
}

}  // namespace geminid::base
