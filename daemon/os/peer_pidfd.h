// SO_PEERPIDFD, which Debian 12's headers lack.
#ifndef GEMINID_DAEMON_OS_PEER_PIDFD_H_
#define GEMINID_DAEMON_OS_PEER_PIDFD_H_

namespace geminid::os {

inline constexpr int kSoPeerPidfd = 77;  // asm-generic/socket.h of Linux 6.5

}  // namespace geminid::os

#endif  // GEMINID_DAEMON_OS_PEER_PIDFD_H_
