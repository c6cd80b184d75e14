// The name of a host in a host file: HOST, or USER@HOST for the remote shell.
#ifndef GEMINID_TRAINING_LAUNCH_HOST_NAME_H_
#define GEMINID_TRAINING_LAUNCH_HOST_NAME_H_

#include <string>

namespace geminid::trainer {

// By which the other hosts reach it.
inline std::string AddressOf(const std::string& name) { return name.substr(name.rfind('@') + 1); }

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_HOST_NAME_H_
