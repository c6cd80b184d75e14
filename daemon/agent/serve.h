// An agent's conversation with the daemon.
#ifndef GEMINID_DAEMON_AGENT_SERVE_H_
#define GEMINID_DAEMON_AGENT_SERVE_H_

#include <string>

#include "absl/status/status.h"
#include "base/unique_fd.h"

namespace geminid::agent {

// Says hello for the GPU with that UUID, and answers requests until the daemon closes its end: OK.
// Any other end is an error, which the daemon was told if that was possible.
absl::Status Serve(const base::UniqueFd& socket, const std::string& uuid);

// Sends the daemon a list of all GPUs.
absl::Status Probe(const base::UniqueFd& socket);

// Prints the same list, for people.
absl::Status PrintGpus();

}  // namespace geminid::agent

#endif  // GEMINID_DAEMON_AGENT_SERVE_H_
