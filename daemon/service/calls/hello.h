// The first message of a client on the attach socket, checked field by field.
#ifndef GEMINID_DAEMON_SERVICE_CALLS_HELLO_H_
#define GEMINID_DAEMON_SERVICE_CALLS_HELLO_H_

#include <cstddef>
#include <span>

#include "absl/status/statusor.h"
#include "daemon/core/engine/engine.h"

namespace geminid::service {

// More ranks than any job has today. Bounds the metrics that a client can cause.
inline constexpr int32_t kMaxWorldSize = 65536;

// The client's identity by its own word. `message` may be any bytes of any length. The kernel's
// facts (tenant, uid, pid) are not in it. If the daemon and the client have no common version, the
// result is FAILED_PRECONDITION with the versions of both, whatever else the message has. `bytes`
// is the length of the whole message, and `message` may be its beginning: a later release's hello
// is longer, and begins like this one's.
absl::StatusOr<core::SessionSpec> CheckHello(std::span<const std::byte> message, size_t bytes);
inline absl::StatusOr<core::SessionSpec> CheckHello(std::span<const std::byte> message) {
  return CheckHello(message, message.size());
}

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_CALLS_HELLO_H_
