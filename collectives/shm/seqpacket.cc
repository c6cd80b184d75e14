#include "collectives/shm/seqpacket.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/hash.h"

namespace geminid::collectives {
namespace {

socklen_t AbstractAddress(const std::string& name, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  base::Fnv1a hash;
  hash.AddText(name);
  const std::string path =
      absl::StrFormat("geminid-collectives/%d/%016x", ::geteuid(), hash.value());
  // sun_path[0] stays 0: the abstract namespace.
  std::memcpy(address->sun_path + 1, path.data(), path.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
}

std::string DescriptorLimit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return "unknown";
  return absl::StrCat(limit.rlim_cur);
}

base::UniqueFd NewSocket() {
  return base::UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

absl::StatusOr<base::UniqueFd> ListenAbstract(const std::string& name, int backlog) {
  base::UniqueFd socket = NewSocket();
  if (!socket.valid()) return absl::ErrnoToStatus(errno, "socket");
  sockaddr_un address;
  const socklen_t length = AbstractAddress(name, &address);
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    if (errno == EADDRINUSE) {
      return absl::AlreadyExistsError(absl::StrFormat(
          "another rank 0 is already waiting under \"%s\"; two jobs on one host need different "
          "MASTER_PORT or GEMINID_JOB_ID",
          name));
    }
    return absl::ErrnoToStatus(errno, "bind");
  }
  if (::listen(socket.get(), backlog) != 0) return absl::ErrnoToStatus(errno, "listen");
  return socket;
}

absl::StatusOr<base::UniqueFd> ConnectAbstract(const std::string& name) {
  base::UniqueFd socket = NewSocket();
  if (!socket.valid()) return absl::ErrnoToStatus(errno, "socket");
  sockaddr_un address;
  const socklen_t length = AbstractAddress(name, &address);
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    // EAGAIN: the listener's queue is full. Both errors pass with time.
    if (errno == ECONNREFUSED || errno == EAGAIN) {
      return absl::UnavailableError(absl::StrCat("no process listens under \"", name, "\""));
    }
    return absl::ErrnoToStatus(errno, "connect");
  }
  if (!PeerIsSameUser(socket.get())) {
    return absl::PermissionDeniedError(
        absl::StrCat("the process that listens under \"", name, "\" belongs to another user"));
  }
  return socket;
}

bool PeerIsSameUser(int socket) {
  ucred peer = {};
  socklen_t length = sizeof(peer);
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         peer.uid == ::geteuid();
}

absl::Status SendRecord(int socket, std::span<const std::byte> record, std::span<const int> fds) {
  iovec part{.iov_base = const_cast<std::byte*>(record.data()), .iov_len = record.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  std::vector<std::byte> control(CMSG_SPACE(fds.size_bytes()));
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return absl::OkStatus();
  if (errno != ETOOMANYREFS) return absl::ErrnoToStatus(errno, "sendmsg");
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot send ", fds.size(),
                   " more descriptors: those that this user's processes have sent and ",
                   "nobody has received yet exceed this process's limit of descriptors, ",
                   DescriptorLimit(), "; raise it (ulimit -n), or start fewer ranks on this host"));
}

absl::StatusOr<std::vector<base::UniqueFd>> ReceiveRecord(int socket, std::span<std::byte> record,
                                                          size_t max_fds) {
  iovec part{.iov_base = record.data(), .iov_len = record.size()};
  std::vector<std::byte> control(CMSG_SPACE(max_fds * sizeof(int)));
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t received = 0;
  // A peer that closed without reading everything causes one ECONNRESET before its records.
  do {
    received = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (received < 0 && (errno == EINTR || errno == ECONNRESET));
  if (received <= 0) return absl::UnavailableError("the peer hung up");
  // Take ownership of all descriptors before checking the record, or they would leak.
  std::vector<base::UniqueFd> fds;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
      fds.emplace_back(fd);
    }
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0 && fds.size() < max_fds) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot receive more than ", fds.size(),
                     " of the descriptors that were sent: this process ", "may have ",
                     DescriptorLimit(), " descriptors; raise the limit (ulimit -n)"));
  }
  if (static_cast<size_t>(received) != record.size() ||
      (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return absl::InvalidArgumentError(
        "a rank sent a record of another size; do all ranks run the same build?");
  }
  return fds;
}

}  // namespace geminid::collectives
