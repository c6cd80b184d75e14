// Permissions of a file as people write them: "0660".
#ifndef GEMINID_DAEMON_CONFIG_MODE_H_
#define GEMINID_DAEMON_CONFIG_MODE_H_

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"

namespace geminid::config {

// Octal digits after a 0, at most 0777. Without the 0 it would be a decimal number to some readers
// and octal to others, so that is refused with what was meant perhaps.
absl::StatusOr<mode_t> ParseMode(const std::string& text);

}  // namespace geminid::config

#endif  // GEMINID_DAEMON_CONFIG_MODE_H_
