// System calls: repeats them after EINTR, and converts their failures to absl::Status.
#ifndef GEMINID_BASE_SYSTEM_ERROR_H_
#define GEMINID_BASE_SYSTEM_ERROR_H_

#include <cerrno>
#include <string>

#include "absl/status/status.h"

namespace geminid::base {

// The status of a failed call: the call's name, `detail` (its object) and the message of `error`.
// The code follows from errno: PERMISSION_DENIED for EACCES, EPERM and EROFS, NOT_FOUND for ENOENT,
// RESOURCE_EXHAUSTED for ENOMEM, ENOSPC, EMFILE, ENFILE and EDQUOT, UNAVAILABLE for EADDRINUSE,
// EBUSY and ECONNREFUSED, else INTERNAL.
absl::Status SystemError(int error, const std::string& call, const std::string& detail);

// Repeats `call` while it fails with EINTR. Not for close().
template <typename Call>
auto RetryOnEintr(Call call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

}  // namespace geminid::base

#endif  // GEMINID_BASE_SYSTEM_ERROR_H_
