#include "daemon/service/entry/socket_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/socket_folder.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "daemon/config/settings.h"
#include "daemon/os/log.h"
#include "daemon/os/unix_socket.h"
#include "proto/shm/attach_messages.h"

namespace geminid::service {
namespace {

// A daemon of root serves everybody, as far as the modes of its sockets go.
constexpr mode_t kSharedFolderMode = 0755;
constexpr mode_t kFolderMode = 0700;
// The client library's name for it.
constexpr char kStarterLog[] = "geminid.log";

absl::Status NoFolder(int error, const std::filesystem::path& folder) {
  const absl::Status status =
      base::SystemError(error, "mkdir", absl::StrCat("folder ", folder.string()));
  return absl::Status(status.code(), absl::StrCat(std::string(status.message()),
                                                  "; choose another --socket, such "
                                                  "as $XDG_RUNTIME_DIR/geminid/geminid.sock"));
}

absl::Status MakeFolder(const std::string& socket) {
  const std::filesystem::path folder = std::filesystem::path(socket).parent_path();
  const mode_t mode = ::geteuid() == 0 ? kSharedFolderMode : kFolderMode;
  if (folder.empty() || ::mkdir(folder.c_str(), mode) == 0 || errno == EEXIST) {
    return absl::OkStatus();
  }
  return NoFolder(errno, folder);
}

void WarnOfSharedFolder(const std::string& socket) {
  const std::string why = base::DescribeOtherOwners(socket, std::array{::geteuid()});
  if (why.empty()) return;
  os::Log(os::LogLevel::kWarning,
          "other users can replace this daemon's sockets, and read what its clients send",
          {{"why", why},
           {"advice", "give --socket a folder of mode 0700, such as $XDG_RUNTIME_DIR/geminid"}});
}

}  // namespace

absl::StatusOr<SocketFiles> SocketFiles::Acquire(const std::string& socket,
                                                 const DaemonOptions& options) {
  GEMINID_RETURN_IF_ERROR(MakeFolder(socket));
  WarnOfSharedFolder(socket);
  // Before anything is bound: a second gRPC server would take the socket over silently.
  GEMINID_ASSIGN_OR_RETURN(os::FileLock lock,
                           os::FileLock::Acquire(absl::StrCat(socket, shm::kLockSuffix)));
  SocketFiles files(socket, options, std::move(lock));
  GEMINID_RETURN_IF_ERROR(files.FreePaths(options));
  return files;
}

absl::Status SocketFiles::CheckFolder(const std::string& socket) {
  const std::filesystem::path folder = std::filesystem::path(socket).parent_path();
  const std::filesystem::path above = folder.parent_path();
  std::error_code ignored;
  if (folder.empty() || std::filesystem::exists(folder, ignored) || above.empty() ||
      std::filesystem::is_directory(above, ignored)) {
    return absl::OkStatus();
  }
  return NoFolder(ENOENT, folder);
}

SocketFiles::SocketFiles(std::string socket, const DaemonOptions& options, os::FileLock lock)
    : socket_(std::move(socket)),
      listeners_handed_over_(options.control_listener.valid()),
      is_private_(options.parent_pid != 0),
      lock_(std::move(lock)) {}

absl::Status SocketFiles::FreePaths(const DaemonOptions& options) const {
  if (options.control_listener.valid() != options.attach_listener.valid()) {
    return absl::FailedPreconditionError(
        "one of the two listeners was handed over; geminid.socket needs ListenStream= and "
        "ListenSequentialPacket=, with their names");
  }
  if (listeners_handed_over_) return absl::OkStatus();
  for (const std::string& path : {socket_, absl::StrCat(socket_, shm::kAttachSuffix)}) {
    GEMINID_RETURN_IF_ERROR(os::RemoveStaleSocket(path));
  }
  return absl::OkStatus();
}

absl::Status SocketFiles::AddMetricsSocket() {
  metrics_socket_ = absl::StrCat(socket_, config::kHttpSuffix);
  return os::RemoveStaleSocket(metrics_socket_);
}

void SocketFiles::Release(const Ends& ends) {
  std::error_code ignored;  // a file that is not there need not be removed
  if (!listeners_handed_over_) {
    if (ends.control) std::filesystem::remove(socket_, ignored);
    std::filesystem::remove(absl::StrCat(socket_, shm::kAttachSuffix), ignored);
  }
  if (!metrics_socket_.empty()) std::filesystem::remove(metrics_socket_, ignored);
  // geminid-holder may listen a little longer, but nobody should connect to it.
  if (ends.holder) std::filesystem::remove(absl::StrCat(socket_, shm::kHolderSuffix), ignored);
  if (is_private_ && ends.sessions) {
    // The lock file of a shared socket stays: removing it would let two daemons lock two files of
    // one name.
    std::filesystem::remove(absl::StrCat(socket_, shm::kLockSuffix), ignored);
    RemoveStartersFolder();
  }
  lock_.reset();
}

// Removes the log and the empty folder alone: a user may have named the folder.
void SocketFiles::RemoveStartersFolder() const {
  const std::filesystem::path folder = std::filesystem::path(socket_).parent_path();
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
