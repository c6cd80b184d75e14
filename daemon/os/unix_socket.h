// Unix sockets of type SOCK_SEQPACKET: messages that keep their boundaries and carry descriptors,
// and a peer whose identity comes from the kernel.
#ifndef GEMINID_DAEMON_OS_UNIX_SOCKET_H_
#define GEMINID_DAEMON_OS_UNIX_SOCKET_H_

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace geminid::os {

// Longest path of a Unix socket: sizeof(sockaddr_un::sun_path) less the terminating zero.
inline constexpr size_t kMaxSocketPath = 107;

// A non-blocking listener at `path`, whose file gets exactly `mode`; it is never more open than
// that, not even for a moment. The path must be free. Descriptors cannot be sent to its connections
// (EPERM) where RefusesDescriptors().
absl::StatusOr<base::UniqueFd> ListenSeqpacket(const std::string& path, mode_t mode, int backlog);
absl::StatusOr<base::UniqueFd> ListenStream(const std::string& path, mode_t mode, int backlog);
// A listener that another process made, such as systemd: the same as one made here, except its
// mode. FAILED_PRECONDITION: it is no listener of that type, or listens elsewhere.
absl::StatusOr<base::UniqueFd> AdoptListener(base::UniqueFd listener, int type,
                                             const std::string& path);
// Whether the kernel can refuse descriptors: Linux 6.16 or later. Otherwise a receiver must close
// them, and closing a socket that lingers may take as long as its sender likes.
bool RefusesDescriptors();
// Allows descriptors on later connections of this listener, whose messages carry some.
void LetDescriptorsThrough(const base::UniqueFd& listener);

// Makes `path` free for a listener. OK: nothing is there, or a socket without a listener, which is
// removed. UNAVAILABLE: somebody listens. FAILED_PRECONDITION: it is any other kind of file.
absl::Status RemoveStaleSocket(const std::string& path);

// A blocking connection to a listener at `path`.
absl::StatusOr<base::UniqueFd> ConnectSeqpacket(const std::string& path);
absl::StatusOr<base::UniqueFd> ConnectUnix(int type, const std::string& path);

// The next connection, non-blocking. An invalid base::UniqueFd: there is none. Errors are those of
// accept, mostly that no descriptor is left.
absl::StatusOr<base::UniqueFd> Accept(const base::UniqueFd& listener);

struct Peer {
  pid_t pid =
      0;  // 0: in a PID namespace that is not visible from here. For people, not for policy.
  uid_t uid = 0;
  gid_t gid = 0;
  base::UniqueFd
      pidfd;  // readable once the process has ended; invalid when the kernel cannot give one
};

// The process that connected, as the kernel recorded it then. Linux 6.5 gives the pidfd itself;
// otherwise it is opened by pid, if that is visible.
absl::StatusOr<Peer> PeerOf(const base::UniqueFd& connection);
// The same without the pidfd, which costs more than everything else.
absl::StatusOr<Peer> CredentialsOf(const base::UniqueFd& connection);

// Sends one message with `fds`, which stay the caller's. Never blocks and raises no SIGPIPE.
// UNAVAILABLE when the peer does not read; FAILED_PRECONDITION when it has gone.
absl::Status SendMessage(const base::UniqueFd& connection, std::span<const std::byte> message,
                         std::span<const int> fds);

struct Received {
  enum class Result { kMessage, kNothing, kEnd };
  Result result = Result::kNothing;
  size_t bytes = 0;        // of the message, even where `buffer` was too small for all of it
  bool truncated = false;  // of data or of descriptors
  bool had_fds = false;
};

// Receives one message without blocking. Descriptors that come with it are put into `fds`; if that
// is null they are closed, because no client may send any to the daemon.
Received ReceiveMessage(const base::UniqueFd& connection, std::span<std::byte> buffer,
                        std::vector<base::UniqueFd>* fds = nullptr);

}  // namespace geminid::os

#endif  // GEMINID_DAEMON_OS_UNIX_SOCKET_H_
