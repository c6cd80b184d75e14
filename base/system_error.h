// System calls: repeated after EINTR, and their failures as absl::Status.
#ifndef GEMINID_BASE_SYSTEM_ERROR_H_
#define GEMINID_BASE_SYSTEM_ERROR_H_

#include <cerrno>
#include <string>

#include "absl/status/status.h"

namespace geminid::base {

// The status of a failed call: its name, `detail` (what it was done to) and the words of `error`.
// The code follows the errno: EACCES, EPERM and EROFS are PERMISSION_DENIED, ENOENT is NOT_FOUND,
// the exhaustions (ENOMEM, ENOSPC, EMFILE, ENFILE, EDQUOT) are RESOURCE_EXHAUSTED, EADDRINUSE,
// EBUSY and ECONNREFUSED are UNAVAILABLE, the rest is INTERNAL.
absl::Status SystemError(int error, const std::string& call, const std::string& detail);

// Calls `call` until it does not fail with EINTR. Not for close().
template <typename Call>
auto RetryOnEintr(Call call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

}  // namespace geminid::base

#endif  // GEMINID_BASE_SYSTEM_ERROR_H_
