// The first message of a client, checked field by field.
#ifndef GEMINID_DAEMON_SERVICE_HELLO_H_
#define GEMINID_DAEMON_SERVICE_HELLO_H_

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/core/engine.h"

namespace geminid::service {

// More ranks than any job has today; a bound on what a client can make the metrics say.
inline constexpr int32_t kMaxWorldSize = 65536;

// Who a client says it is, from the bytes of its Hello, which may be anything of any length. The
// kernel's facts (tenant, uid, pid) are not in it. A client of another protocol version gets
// FAILED_PRECONDITION naming both versions, whatever else is in its message.
absl::StatusOr<core::SessionSpec> CheckHello(std::span<const std::byte> message);

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_HELLO_H_
