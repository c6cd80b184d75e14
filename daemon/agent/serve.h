// An agent's conversation with the daemon.
#ifndef GEMINID_DAEMON_AGENT_SERVE_H_
#define GEMINID_DAEMON_AGENT_SERVE_H_

#include <string>

#include "absl/status/status.h"
#include "base/unique_fd.h"

namespace geminid::agent {

// Says hello for the GPU of that UUID and answers requests until the daemon closes its end: OK.
// Another end is an error, which the daemon was told as far as it can be.
absl::Status Serve(const base::UniqueFd& socket, const std::string& uuid);

// Tells the daemon all GPUs.
absl::Status Probe(const base::UniqueFd& socket);

// The same in words, for people.
absl::Status PrintGpus();

}  // namespace geminid::agent

#endif  // GEMINID_DAEMON_AGENT_SERVE_H_
