// The name of a host in a host file: HOST, or USER@HOST for the remote shell.
#ifndef GEMINID_TRAINING_LAUNCH_HOST_NAME_H_
#define GEMINID_TRAINING_LAUNCH_HOST_NAME_H_

#include <string>

#include "absl/status/status.h"

namespace geminid::trainer {

// By which the other hosts reach it.
inline std::string AddressOf(const std::string& name) { return name.substr(name.rfind('@') + 1); }

// INVALID_ARGUMENT for what is no name of a host. A remote shell would take one that begins with a
// '-' for an option.
absl::Status CheckHostName(const std::string& name);

bool IsThisHost(const std::string& name);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_HOST_NAME_H_
