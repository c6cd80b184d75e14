// Makes the folder of the daemon's sockets, locks it against other daemons and frees the paths for
// new listeners. Removes the daemon's files at its end.
#ifndef GEMINID_DAEMON_SERVICE_ENTRY_SOCKET_FILES_H_
#define GEMINID_DAEMON_SERVICE_ENTRY_SOCKET_FILES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/os/file_lock.h"
#include "daemon/service/entry/daemon_options.h"

namespace geminid::service {

class SocketFiles {
 public:
  // Makes the folder if it is missing, as /run/geminid is without a service manager: for the
  // daemon's user alone (0700), or for everybody (0755) if that user is root. Logs a warning if
  // other users could replace the sockets. UNAVAILABLE: another daemon has the socket.
  static absl::StatusOr<SocketFiles> Acquire(const std::string& socket,
                                             const DaemonOptions& options);

  // Whether Acquire could make the folder, as far as can be told without making it.
  static absl::Status CheckFolder(const std::string& socket);

  const std::string& socket() const { return socket_; }
  // A path; empty: metrics are not served.
  const std::string& metrics_socket() const { return metrics_socket_; }
  // How many daemons have had this socket, this one included.
  uint64_t epoch() const { return lock_->epoch(); }
  bool is_locked() const { return lock_.has_value(); }

  // Frees the path of the metrics' socket.
  absl::Status AddMetricsSocket();

  struct Ends {
    bool control = false;   // the control socket was opened
    bool holder = false;    // geminid-holder's socket is not needed any more
    bool sessions = false;  // no later daemon continues them
  };
  // Removes what the daemon made, and lets others have the socket.
  void Release(const Ends& ends);

 private:
  SocketFiles(std::string socket, const DaemonOptions& options, os::FileLock lock);
  // Frees no path if both listeners were handed over. FAILED_PRECONDITION: only one of them was.
  absl::Status FreePaths(const DaemonOptions& options) const;
  void RemoveStartersFolder() const;

  std::string socket_;
  std::string metrics_socket_;
  bool listeners_handed_over_;
  bool is_private_;
  std::optional<os::FileLock> lock_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_ENTRY_SOCKET_FILES_H_
