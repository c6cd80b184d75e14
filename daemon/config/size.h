// Amounts of memory in settings.
#ifndef GEMINID_DAEMON_CONFIG_SIZE_H_
#define GEMINID_DAEMON_CONFIG_SIZE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace geminid::config {

// The bytes of "8GiB", as base::ParseBytes reads them. INVALID_ARGUMENT also for a small number
// without a unit: 32 probably means 32 GiB or 32 MiB, and 32 bytes can be written as 32B.
absl::StatusOr<uint64_t> ParseSize(const std::string& text);

}  // namespace geminid::config

#endif  // GEMINID_DAEMON_CONFIG_SIZE_H_
