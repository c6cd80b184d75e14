// Keeps the logs of gRPC and Protocol Buffers from the process's standard error.
#ifndef GEMINID_DAEMON_SERVICE_ENTRY_LIBRARY_LOGS_H_
#define GEMINID_DAEMON_SERVICE_ENTRY_LIBRARY_LOGS_H_

namespace geminid::service {

// Both libraries write to the log of this process from now on: few lines, of level debug. Later
// calls do nothing.
void QuietLibraries();

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_ENTRY_LIBRARY_LOGS_H_
