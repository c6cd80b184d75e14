// Where clients find the daemon, unless a flag says otherwise.
#ifndef GEMINID_PROTO_SHM_DAEMON_SOCKET_H_
#define GEMINID_PROTO_SHM_DAEMON_SOCKET_H_

namespace geminid::shm {

inline constexpr char kSocketVariable[] = "GEMINID_SOCKET";
inline constexpr char kInstalledSocket[] = "/run/geminid/geminid.sock";

}  // namespace geminid::shm

#endif  // GEMINID_PROTO_SHM_DAEMON_SOCKET_H_
