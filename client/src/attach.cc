#include "client/src/attach.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "base/process_limits.h"
#include "base/socket_folder.h"
#include "base/status_macros.h"
#include "base/system_error.h"

namespace geminid {
namespace {

absl::Status NoDaemon(const std::string& socket, const std::string& why) {
  return absl::UnavailableError(
      absl::StrCat("no daemon serves ", socket, " (", why, "); start one with `geminid --socket ",
                   socket, "`, or unset GEMINID_SOCKET to have a private one started"));
}

// The daemon makes a socket at the path itself, too. Another file there is the reader's mistake.
bool IsNoSocket(const std::string& path) {
  struct stat found = {};
  return stat(path.c_str(), &found) == 0 && !S_ISSOCK(found.st_mode);
}

absl::Status ConnectFailed(const std::string& socket) {
  if (errno == ENOENT && IsNoSocket(socket)) {
    return absl::UnavailableError(
        absl::StrCat("no daemon serves ", socket,
                     ": that file or folder is not a socket; set GEMINID_SOCKET to the path that "
                     "the daemon has as --socket, or unset it to have a private one started"));
  }
  if (errno == ENOENT || errno == ECONNREFUSED) return NoDaemon(socket, std::strerror(errno));
  if (errno == EACCES || errno == EPERM) {
    return absl::PermissionDeniedError(
        absl::StrCat("may not connect to ", socket, shm::kAttachSuffix,
                     "; ask the owner of the daemon for access to its socket"));
  }
  if (errno == EAGAIN) {
    return absl::UnavailableError(
        absl::StrCat("the daemon at ", socket, " does not accept connections; try again"));
  }
  return base::SystemError(errno, "connect", absl::StrCat(socket, shm::kAttachSuffix));
}

// Trusts a daemon of root or of this user. Trusts another user's daemon only if nobody else can
// replace its socket.
absl::Status CheckWhoListens(int fd, const std::string& socket) {
  ucred owner = {};
  socklen_t size = sizeof owner;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &owner, &size) != 0) {
    return base::SystemError(errno, "getsockopt(SO_PEERCRED)", socket);
  }
  const uid_t self = geteuid();
  if (owner.uid == 0 || owner.uid == self) return absl::OkStatus();
  const std::string why = base::DescribeOtherOwners(socket, std::array{owner.uid, self});
  if (why.empty()) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "the daemon at ", socket, " is user ", owner.uid, "'s, and ", why,
      ": anybody could have started it to read this process's memory; have the daemon's sockets in "
      "a folder that only its user may write to (mode 0755)"));
}

// Blocking sends on `fd` give up after `timeout`.
void BoundSends(int fd, absl::Duration timeout) {
  const timeval limit = absl::ToTimeval(timeout);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

absl::Status CheckWelcome(const shm::Welcome& welcome, const std::string& socket) {
  if (welcome.magic != shm::kWelcomeMagic) {
    return absl::InternalError(absl::StrCat("the process that answers at ", socket,
                                            shm::kAttachSuffix, " is not a geminid daemon"));
  }
  const std::string words(welcome.error, strnlen(welcome.error, sizeof welcome.error));
  if (welcome.protocol_version != shm::kProtocolVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the daemon at ", socket, " speaks protocol version ",
                     welcome.protocol_version, ", this library version ", shm::kProtocolVersion,
                     "; install the same release of both", words.empty() ? "" : ": ", words));
  }
  if (welcome.status != 0) {
    return absl::Status(static_cast<absl::StatusCode>(welcome.status), words);
  }
  return absl::OkStatus();
}

size_t TakeFds(msghdr* header, base::UniqueFd* fds, size_t max_fds) {
  size_t count = 0;
  for (cmsghdr* control = CMSG_FIRSTHDR(header); control != nullptr;
       control = CMSG_NXTHDR(header, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const size_t bytes = control->cmsg_len - CMSG_LEN(0);
    for (size_t at = 0; at + sizeof(int) <= bytes; at += sizeof(int)) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(control) + at, sizeof fd);
      base::UniqueFd owned(fd);
      if (count < max_fds) fds[count++] = std::move(owned);
    }
  }
  return count;
}

}  // namespace

absl::Status CopyName(const std::string& text, const char* what, char (&field)[shm::kNameBytes]) {
  if (text.size() >= sizeof field) {
    return absl::InvalidArgumentError(absl::StrCat(what, " '", text, "' has ", text.size(),
                                                   " characters; at most ", sizeof field - 1,
                                                   " are allowed"));
  }
  std::memset(field, 0, sizeof field);
  std::memcpy(field, text.data(), text.size());
  return absl::OkStatus();
}

absl::StatusOr<AttachSocket> AttachSocket::Connect(const std::string& socket,
                                                   absl::Duration timeout) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string path = absl::StrCat(socket, shm::kAttachSuffix);
  if (path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(absl::StrCat("the socket path ", path, " has ", path.size(),
                                                   " characters; Unix sockets allow ",
                                                   sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  base::UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return base::SystemError(errno, "socket", path);
  BoundSends(fd.get(), timeout);
  int connected;
  do {
    connected = connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  } while (connected != 0 && errno == EINTR);
  if (connected != 0) return ConnectFailed(socket);
  GEMINID_RETURN_IF_ERROR(CheckWhoListens(fd.get(), socket));
  return AttachSocket(std::move(fd), socket, timeout);
}

absl::Status AttachSocket::WaitReadable() {
  const base::Deadline deadline = base::Deadline::In(timeout_);
  pollfd waiting = {fd_.get(), POLLIN, 0};
  for (;;) {
    constexpr int kAtMostMilliseconds = 1 << 30;
    const int ready = poll(&waiting, 1, deadline.LeftMilliseconds(kAtMostMilliseconds));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return base::SystemError(errno, "poll", socket_);
    if (ready == 0 && deadline.Passed()) {
      return absl::UnavailableError(absl::StrCat(
          "the daemon at ", socket_, " did not answer within ", absl::FormatDuration(timeout_)));
    }
  }
}

absl::StatusOr<size_t> AttachSocket::Receive(void* message, size_t bytes, base::UniqueFd* fds,
                                             size_t max_fds) {
  GEMINID_RETURN_IF_ERROR(WaitReadable());
  iovec part = {message, bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * shm::kWelcomeFds)];
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  ssize_t received;
  do {
    received = recvmsg(fd_.get(), &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (received < 0 && errno == EINTR);
  if (received == 0 || (received < 0 && errno == ECONNRESET)) {
    hung_up_ = true;
    return absl::UnavailableError(absl::StrCat("the daemon at ", socket_, " hung up"));
  }
  if (received < 0) return base::SystemError(errno, "recvmsg", socket_);
  const size_t count = TakeFds(&header, fds, max_fds);
  // The control buffer has room for all, so the kernel found no free number for one of them.
  if ((header.msg_flags & MSG_CTRUNC) != 0 && count < max_fds) {
    return base::WithLimits(base::SystemError(
        EMFILE, "recvmsg", absl::StrCat("the descriptors of the daemon at ", socket_)));
  }
  if (static_cast<size_t>(received) != bytes || (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
    return absl::InternalError(
        absl::StrCat("the daemon at ", socket_,
                     " sent a message of the wrong size; install the same release of both"));
  }
  return count;
}

absl::StatusOr<ReceivedWelcome> AttachSocket::SayHello(const shm::Hello& hello) {
  ssize_t sent;
  do {
    sent = send(fd_.get(), &hello, sizeof hello, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  hung_up_ = sent < 0 && (errno == EPIPE || errno == ECONNRESET);
  if (sent != sizeof hello) return base::SystemError(errno, "send", socket_);
  ReceivedWelcome welcomed = {};
  GEMINID_ASSIGN_OR_RETURN(const size_t fds, Receive(&welcomed.message, sizeof welcomed.message,
                                                     welcomed.fds.data(), shm::kWelcomeFds));
  GEMINID_RETURN_IF_ERROR(CheckWelcome(welcomed.message, socket_));
  if (fds != shm::kWelcomeFds) {
    return absl::InternalError(absl::StrCat("the daemon at ", socket_, " sent ", fds,
                                            " descriptors instead of ", shm::kWelcomeFds));
  }
  return welcomed;
}

bool AttachSocket::HasMemory() const {
  pollfd waiting = {fd_.get(), POLLIN, 0};
  return poll(&waiting, 1, 0) == 1 && (waiting.revents & (POLLHUP | POLLERR)) == 0;
}

absl::StatusOr<ReceivedMemory> AttachSocket::ReceiveMemory() {
  ReceivedMemory memory = {};
  GEMINID_ASSIGN_OR_RETURN(const size_t fds,
                           Receive(&memory.message, sizeof memory.message, &memory.fd, 1));
  if (memory.message.magic != shm::kMemoryMagic || fds != 1) {
    return absl::InternalError(
        absl::StrCat("the daemon at ", socket_, " sent something other than memory"));
  }
  return memory;
}

}  // namespace geminid
