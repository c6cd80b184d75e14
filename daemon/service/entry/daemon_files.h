// The folder of the daemon's sockets before it listens there.
#ifndef GEMINID_DAEMON_SERVICE_ENTRY_DAEMON_FILES_H_
#define GEMINID_DAEMON_SERVICE_ENTRY_DAEMON_FILES_H_

#include <string>

#include "absl/status/status.h"
#include "daemon/service/entry/daemon.h"

namespace geminid::service {

// The folder of the default socket, /run/geminid, is not there before a service manager made it.
// A new one is its user's alone (0700), but root's daemon serves others too (0755).
absl::Status MakeFolder(const std::string& socket);

// Logs why others could replace the sockets, if they could.
void WarnOfSharedFolder(const std::string& socket);

// Makes the paths of the sockets free for new listeners; where they are handed over, there is
// nothing to free. UNAVAILABLE when somebody else listens there.
absl::Status FreePaths(const std::string& socket, const DaemonOptions& options);

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_ENTRY_DAEMON_FILES_H_
