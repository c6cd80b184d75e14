// A private daemon, for a process tree that runs without an installed one.
#ifndef GEMINID_PRIVATE_DAEMON_H_
#define GEMINID_PRIVATE_DAEMON_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "geminid/export.h"

namespace geminid {

struct PrivateDaemonOptions {
  // Empty: $GEMINID_DAEMON; else `geminid` beside the shared library, or where it was installed
  // with it; else beside this program; else on $PATH.
  std::string binary{};
  std::vector<std::string> arguments{};  // further flags, such as {"--host-memory", "8GiB"}
  absl::Duration timeout = absl::Seconds(10);
};

// Runs until this object is destroyed or this process ends, in whatever way. Export socket() as
// $GEMINID_SOCKET to the processes that shall share the daemon. If the daemon dies earlier, a
// thread restarts it, and its sessions go on.
class GEMINID_EXPORT PrivateDaemon {
 public:
  // Starts the daemon and waits until it serves. On failure the message ends with the last lines of
  // its log.
  static absl::StatusOr<std::unique_ptr<PrivateDaemon>> Start(const PrivateDaemonOptions& options);

  // Asks the daemon to end, waits, and removes its folder. In a forked child: does nothing.
  ~PrivateDaemon();
  PrivateDaemon(const PrivateDaemon&) = delete;
  PrivateDaemon& operator=(const PrivateDaemon&) = delete;

  const std::string& socket() const { return socket_; }
  // Changes when the daemon was restarted; -1: it died and could not be restarted.
  pid_t pid() const;
  // The last lines of the daemon's log.
  std::string LogTail() const;

 private:
  class Keeper;
  PrivateDaemon();

  std::string folder_;
  std::string socket_;
  std::string log_path_;
  pid_t owner_ = -1;
  std::unique_ptr<Keeper> keeper_;
};

}  // namespace geminid

#endif  // GEMINID_PRIVATE_DAEMON_H_
