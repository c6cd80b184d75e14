// The first message of a client on the attach socket, checked field by field.
#ifndef GEMINID_DAEMON_SERVICE_CALLS_HELLO_H_
#define GEMINID_DAEMON_SERVICE_CALLS_HELLO_H_

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/core/engine/engine.h"

namespace geminid::service {

// More ranks than any job has today; a bound on what a client can make the metrics say.
inline constexpr int32_t kMaxWorldSize = 65536;

// Who a client says it is, from the bytes of its Hello, which may be anything of any length. The
// kernel's facts (tenant, uid, pid) are not in it. A client with which the daemon has no version in
// common gets FAILED_PRECONDITION naming the versions of both, whatever else is in its message.
// `bytes`: of the whole message, of which `message` may be the beginning: a later release's hello
// is longer, and begins like this one's.
absl::StatusOr<core::SessionSpec> CheckHello(std::span<const std::byte> message, size_t bytes);
inline absl::StatusOr<core::SessionSpec> CheckHello(std::span<const std::byte> message) {
  return CheckHello(message, message.size());
}

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_CALLS_HELLO_H_
