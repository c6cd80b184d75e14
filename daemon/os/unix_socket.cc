#include "daemon/os/unix_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "daemon/os/peer_pidfd.h"

namespace geminid::os {
namespace {

constexpr int kSoPassRights = 83;  // asm-generic/socket.h of Linux 6.16
// The kernel's own bound on descriptors in one message (SCM_MAX_FD).
constexpr size_t kMaxFdsPerMessage = 253;
constexpr mode_t kNobodyElse = 0177;

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  if (path.empty()) return absl::InvalidArgumentError("the socket path is empty");
  if (path.size() > kMaxSocketPath) {
    return absl::InvalidArgumentError(absl::StrCat("socket path ", path, " has ", path.size(),
                                                   " characters; the kernel allows ",
                                                   kMaxSocketPath, ": choose a shorter one"));
  }
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

absl::StatusOr<base::UniqueFd> NewSocket(int type) {
  base::UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return base::SystemError(errno, "socket", "a Unix socket");
  return fd;
}

// Connections inherit this option from their listener.
bool PassDescriptors(const base::UniqueFd& socket, bool pass) {
  const int value = pass ? 1 : 0;
  return ::setsockopt(socket.get(), SOL_SOCKET, kSoPassRights, &value, sizeof(value)) == 0;
}
bool RefuseDescriptors(const base::UniqueFd& socket) { return PassDescriptors(socket, false); }

absl::StatusOr<base::UniqueFd> Listen(int type, const std::string& path, mode_t mode, int backlog) {
  GEMINID_ASSIGN_OR_RETURN(sockaddr_un address, AddressOf(path));
  absl::StatusOr<base::UniqueFd> fd = NewSocket(type | SOCK_NONBLOCK);
  if (!fd.ok()) return fd;
  (void)RefuseDescriptors(*fd);  // older kernels cannot; see RefusesDescriptors
  const mode_t old_mask = ::umask(kNobodyElse);
  const int bound = ::bind(fd->get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int bind_error = errno;
  ::umask(old_mask);
  if (bound != 0) return base::SystemError(bind_error, "bind", absl::StrCat("socket ", path));
  // Others who may write in the folder could have put a link in the socket's place.
  if (::fchmodat(AT_FDCWD, path.c_str(), mode, AT_SYMLINK_NOFOLLOW) != 0) {
    return base::SystemError(errno, "chmod", path);
  }
  if (::listen(fd->get(), backlog) != 0) return base::SystemError(errno, "listen", path);
  return fd;
}

}  // namespace

absl::StatusOr<base::UniqueFd> ListenSeqpacket(const std::string& path, mode_t mode, int backlog) {
  return Listen(SOCK_SEQPACKET, path, mode, backlog);
}

absl::StatusOr<base::UniqueFd> ListenStream(const std::string& path, mode_t mode, int backlog) {
  return Listen(SOCK_STREAM, path, mode, backlog);
}

absl::StatusOr<base::UniqueFd> AdoptListener(base::UniqueFd listener, int type,
                                             const std::string& path) {
  const auto option = [&listener](int name) {
    int value = -1;
    socklen_t size = sizeof(value);
    return ::getsockopt(listener.get(), SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
  };
  if (option(SO_ACCEPTCONN) != 1 || option(SO_TYPE) != type) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the descriptor handed over for ", path, " is not a listener of the right type; see ",
        "ListenStream= and ListenSequentialPacket= in geminid.socket"));
  }
  sockaddr_un address = {};
  socklen_t size = sizeof(address);
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  const bool is_unix = address.sun_family == AF_UNIX;  // else the rest is no text
  if (!is_unix || path != address.sun_path) {
    const std::string at = is_unix ? absl::StrCat("at '", address.sun_path, "'") : "an IP socket";
    return absl::FailedPreconditionError(
        absl::StrCat("the listener that was handed over is ", at, ", and not at ", path,
                     "; have geminid.socket and the configuration name the same socket"));
  }
  const int flags = ::fcntl(listener.get(), F_GETFL);
  if (flags < 0 || ::fcntl(listener.get(), F_SETFL, flags | O_NONBLOCK) != 0 ||
      ::fcntl(listener.get(), F_SETFD, FD_CLOEXEC) != 0) {
    return base::SystemError(errno, "fcntl", path);
  }
  (void)RefuseDescriptors(listener);  // older kernels cannot; see RefusesDescriptors
  return listener;
}

bool RefusesDescriptors() {
  const absl::StatusOr<base::UniqueFd> socket = NewSocket(SOCK_STREAM);
  return socket.ok() && RefuseDescriptors(*socket);
}

void LetDescriptorsThrough(const base::UniqueFd& listener) {
  (void)PassDescriptors(listener, true);
}

absl::Status RemoveStaleSocket(const std::string& path) {
  GEMINID_ASSIGN_OR_RETURN(sockaddr_un address, AddressOf(path));
  struct stat facts;
  if (::lstat(path.c_str(), &facts) != 0) {
    return errno == ENOENT ? absl::OkStatus() : base::SystemError(errno, "lstat", path);
  }
  if (!S_ISSOCK(facts.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " exists and is not a socket; it was left alone: choose another --socket"));
  }
  // A listener of another type answers EPROTOTYPE: it is alive too.
  for (const int type : {SOCK_STREAM, SOCK_SEQPACKET}) {
    GEMINID_ASSIGN_OR_RETURN(base::UniqueFd probe, NewSocket(type | SOCK_NONBLOCK));
    const int connected = base::RetryOnEintr([&] {
      return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    });
    if (connected == 0 || errno == EAGAIN) {
      return absl::UnavailableError(
          absl::StrCat("a process that is not the previous daemon of this socket listens on ", path,
                       "; stop it first, or choose another --socket"));
    }
    if (errno != ECONNREFUSED && errno != EPROTOTYPE)
      return base::SystemError(errno, "connect", path);
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    return base::SystemError(errno, "unlink", path);
  return absl::OkStatus();
}

absl::StatusOr<base::UniqueFd> ConnectSeqpacket(const std::string& path) {
  return ConnectUnix(SOCK_SEQPACKET, path);
}

absl::StatusOr<base::UniqueFd> ConnectUnix(int type, const std::string& path) {
  GEMINID_ASSIGN_OR_RETURN(sockaddr_un address, AddressOf(path));
  absl::StatusOr<base::UniqueFd> fd = NewSocket(type);
  if (!fd.ok()) return fd;
  if (base::RetryOnEintr([&] {
        return ::connect(fd->get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
      }) != 0) {
    if (errno == EAGAIN) {
      return absl::ResourceExhaustedError(
          absl::StrCat("socket ", path, ": its listener does not accept connections"));
    }
    return base::SystemError(errno, "connect", absl::StrCat("socket ", path));
  }
  return fd;
}

absl::StatusOr<base::UniqueFd> Accept(const base::UniqueFd& listener) {
  const int fd = base::RetryOnEintr(
      [&] { return ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
  if (fd >= 0) return base::UniqueFd(fd);
  if (errno == EAGAIN || errno == ECONNABORTED) return base::UniqueFd();
  return base::SystemError(errno, "accept4", "a connection");
}

absl::StatusOr<Peer> CredentialsOf(const base::UniqueFd& connection) {
  ucred credentials = {};
  socklen_t size = sizeof(credentials);
  if (::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return base::SystemError(errno, "getsockopt(SO_PEERCRED)", "an attaching client");
  }
  Peer peer;
  peer.pid = credentials.pid;
  peer.uid = credentials.uid;
  peer.gid = credentials.gid;
  return peer;
}

absl::StatusOr<Peer> PeerOf(const base::UniqueFd& connection) {
  absl::StatusOr<Peer> peer = CredentialsOf(connection);
  if (!peer.ok()) return peer;
  int pidfd = -1;
  socklen_t size = sizeof(pidfd);
  if (::getsockopt(connection.get(), SOL_SOCKET, kSoPeerPidfd, &pidfd, &size) == 0) {
    peer->pidfd = base::UniqueFd(pidfd);
  } else if (peer->pid > 0) {
    peer->pidfd = base::UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, peer->pid, 0)));
  }
  // If there is no pidfd for any other reason, only the connection shows the client's end.
  if (!peer->pidfd.valid() && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
    return base::SystemError(errno, "pidfd_open", "an attaching client");
  }
  return peer;
}

absl::Status SendMessage(const base::UniqueFd& connection, std::span<const std::byte> message,
                         std::span<const int> fds) {
  if (fds.size() > kMaxFdsPerMessage) {
    return absl::InvalidArgumentError(absl::StrCat("a message carries at most ", kMaxFdsPerMessage,
                                                   " descriptors, not ", fds.size()));
  }
  iovec data = {const_cast<std::byte*>(message.data()), message.size()};
  msghdr header = {};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFdsPerMessage)] = {};
  if (!fds.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  }
  const ssize_t sent = base::RetryOnEintr(
      [&] { return ::sendmsg(connection.get(), &header, MSG_DONTWAIT | MSG_NOSIGNAL); });
  if (sent == static_cast<ssize_t>(message.size())) return absl::OkStatus();
  if (sent >= 0) return absl::InternalError("sendmsg sent part of a message");
  if (errno == EAGAIN) return absl::UnavailableError("the client does not read its attach socket");
  if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN) {
    return absl::FailedPreconditionError("the client has closed its attach socket");
  }
  return base::SystemError(errno, "sendmsg", "the attach socket");
}

Received ReceiveMessage(const base::UniqueFd& connection, std::span<std::byte> buffer,
                        std::vector<base::UniqueFd>* fds) {
  iovec data = {buffer.data(), buffer.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFdsPerMessage)] = {};
  msghdr header = {};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  const ssize_t got = base::RetryOnEintr([&] {
    return ::recvmsg(connection.get(), &header, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
  });
  Received received;
  if (got < 0) {
    received.result = errno == EAGAIN ? Received::Result::kNothing : Received::Result::kEnd;
    return received;
  }
  for (cmsghdr* item = CMSG_FIRSTHDR(&header); item != nullptr; item = CMSG_NXTHDR(&header, item)) {
    if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) continue;
    received.had_fds = true;
    const size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(item) + i * sizeof(int), sizeof(fd));
      base::UniqueFd owned(fd);  // closed here if `fds` is null
      if (fds != nullptr) fds->push_back(std::move(owned));
    }
  }
  // A message of no bytes looks like the end; nobody has a reason to send one.
  if (got == 0) {
    received.result = Received::Result::kEnd;
    return received;
  }
  received.result = Received::Result::kMessage;
  received.bytes = static_cast<size_t>(got);
  received.truncated = (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  return received;
}

}  // namespace geminid::os
