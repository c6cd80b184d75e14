// A file's permissions, as people write them: "0660".
#ifndef GEMINID_DAEMON_CONFIG_MODE_H_
#define GEMINID_DAEMON_CONFIG_MODE_H_

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"

namespace geminid::config {

// Octal digits after a 0, at most 0777. Without the leading 0 some readers would take the number
// for decimal and others for octal. Such a text is refused, with a suggestion where one is likely.
absl::StatusOr<mode_t> ParseMode(const std::string& text);

}  // namespace geminid::config

#endif  // GEMINID_DAEMON_CONFIG_MODE_H_
