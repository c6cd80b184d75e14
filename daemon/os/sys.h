// System calls: repeated after EINTR, and their failures as absl::Status.
#ifndef GEMINID_DAEMON_OS_SYS_H_
#define GEMINID_DAEMON_OS_SYS_H_

#include <cerrno>
#include <string>

#include "absl/status/status.h"

namespace geminid::os {

// The status of a failed call: its name, `detail` (what it was done to) and the words of `error`.
// The code follows the errno: EACCES and EPERM are PERMISSION_DENIED, ENOENT is NOT_FOUND, the
// exhaustions (ENOMEM, ENOSPC, EMFILE, ENFILE, EDQUOT) are RESOURCE_EXHAUSTED, EADDRINUSE and EBUSY
// are UNAVAILABLE, the rest is INTERNAL.
absl::Status ErrnoError(int error, const std::string& call, const std::string& detail);

// Calls `call` until it does not fail with EINTR. Not for close().
template <typename Call>
auto RetryOnEintr(Call call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

}  // namespace geminid::os

#endif  // GEMINID_DAEMON_OS_SYS_H_
