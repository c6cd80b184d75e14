// The name of a host in a host file: HOST, or USER@HOST for the remote shell.
#ifndef GEMINID_TRAINING_LAUNCH_HOST_NAME_H_
#define GEMINID_TRAINING_LAUNCH_HOST_NAME_H_

#include <string>

#include "absl/status/status.h"

namespace geminid::trainer {

// The address by which other hosts reach the host.
inline std::string AddressOf(const std::string& name) { return name.substr(name.rfind('@') + 1); }

// INVALID_ARGUMENT if `name` is not a host's name. Names that begin with '-' are refused,
// because a remote shell would take them for options.
absl::Status CheckHostName(const std::string& name);

bool IsThisHost(const std::string& name);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_HOST_NAME_H_
