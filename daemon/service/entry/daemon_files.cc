// The part of the daemon that has to do with files: the folder of its sockets, and what is left in
// it.
#include "daemon/service/entry/daemon_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/socket_folder.h"
#include "base/system_error.h"
#include "daemon/os/log.h"
#include "daemon/os/unix_socket.h"
#include "proto/shm/attach_messages.h"

namespace geminid::service {
namespace {

// root's daemon is everybody's, as far as the modes of its sockets go.
constexpr mode_t kSharedFolderMode = 0755;
constexpr mode_t kFolderMode = 0700;
// What the client library calls it.
constexpr char kStarterLog[] = "geminid.log";

}  // namespace

absl::Status MakeFolder(const std::string& socket) {
  const std::filesystem::path folder = std::filesystem::path(socket).parent_path();
  const mode_t mode = ::geteuid() == 0 ? kSharedFolderMode : kFolderMode;
  if (folder.empty() || ::mkdir(folder.c_str(), mode) == 0 || errno == EEXIST) {
    return absl::OkStatus();
  }
  absl::Status status = base::SystemError(errno, "mkdir", absl::StrCat("folder ", folder.string()));
  return absl::Status(status.code(), absl::StrCat(std::string(status.message()),
                                                  "; choose another --socket, such "
                                                  "as $XDG_RUNTIME_DIR/geminid/geminid.sock"));
}

void WarnOfSharedFolder(const std::string& socket) {
  const std::string why = base::WhoElseMayReplace(socket, std::array{::geteuid()});
  if (why.empty()) return;
  os::Log(os::LogLevel::kWarning,
          "others may put sockets of their own in the place of this daemon's, and read what its "
          "clients send",
          {{"why", why},
           {"advice", "give --socket a folder of mode 0700, such as $XDG_RUNTIME_DIR/geminid"}});
}

absl::Status FreePaths(const std::string& socket, const DaemonOptions& options) {
  if (options.control_listener.valid() != options.attach_listener.valid()) {
    return absl::FailedPreconditionError(
        "one of the two listeners was handed over; geminid.socket needs ListenStream= and "
        "ListenSequentialPacket=, with their names");
  }
  if (options.control_listener.valid()) return absl::OkStatus();
  for (const std::string& path : {socket, absl::StrCat(socket, shm::kAttachSuffix)}) {
    if (absl::Status status = os::RemoveStaleSocket(path); !status.ok()) return status;
  }
  return absl::OkStatus();
}

void Daemon::RemoveFiles(bool sessions_go_on) {
  std::error_code ignored;  // what is not there need not be removed
  if (!listeners_handed_over_) {
    if (rpc_ != nullptr) std::filesystem::remove(settings_.socket, ignored);
    std::filesystem::remove(absl::StrCat(settings_.socket, shm::kAttachSuffix), ignored);
  }
  if (!metrics_socket_.empty()) std::filesystem::remove(metrics_socket_, ignored);
  // Its listener may live a little longer, but nobody is to meet it.
  if (store_ != nullptr && !sessions_go_on) {
    std::filesystem::remove(absl::StrCat(settings_.socket, shm::kHolderSuffix), ignored);
  }
  if (options_.parent_pid == 0 || sessions_go_on) return;
  // The lock file of a shared socket stays: removing it would let two daemons lock two files of one
  // name.
  std::filesystem::remove(absl::StrCat(settings_.socket, shm::kLockSuffix), ignored);
  RemoveStartersFolder();
}

// Nothing else is removed of a folder that somebody named on the command line.
void Daemon::RemoveStartersFolder() {
  const std::filesystem::path folder = std::filesystem::path(settings_.socket).parent_path();
  const std::filesystem::path log = folder / kStarterLog;
  struct stat file = {};
  struct stat output = {};
  if (::lstat(log.c_str(), &file) != 0 || ::fstat(STDERR_FILENO, &output) != 0 ||
      file.st_dev != output.st_dev || file.st_ino != output.st_ino) {
    return;
  }
  std::error_code ignored;
  std::filesystem::remove(log, ignored);
  std::filesystem::remove(folder, ignored);  // only if it is empty
}

}  // namespace geminid::service
