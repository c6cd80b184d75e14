// The limits that a shell or a service manager puts on this process.
#ifndef GEMINID_DAEMON_OS_LIMITS_H_
#define GEMINID_DAEMON_OS_LIMITS_H_

#include <cstdint>

#include "absl/status/status.h"

namespace geminid::os {

struct Limits {
  uint64_t file_bytes = ~uint64_t{0};           // of one file; memory that is handed out is files
  uint64_t address_space_bytes = ~uint64_t{0};  // all memory is mapped while it is made
};

// Raises these limits, and that of descriptors, as far as it may; returns the resulting limits.
Limits RaiseLimits();

// RESOURCE_EXHAUSTED with numbers if the daemon could not hand out what it is configured to:
// `file_bytes` at most at once, `total_bytes` in all.
absl::Status CheckLimits(const Limits& limits, uint64_t file_bytes, uint64_t total_bytes);

}  // namespace geminid::os

#endif  // GEMINID_DAEMON_OS_LIMITS_H_
