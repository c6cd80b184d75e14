// TCP sockets between ranks, and between a rank and the coordinator. All are non-blocking. A write
// to a closed connection is an error, not a signal.
#ifndef GEMINID_COLLECTIVES_TCP_SOCKET_H_
#define GEMINID_COLLECTIVES_TCP_SOCKET_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/deadline.h"
#include "base/unique_fd.h"

namespace geminid::collectives {

// Listens on `port` (0: any free port), at the loopback interface if `host` is a loopback name,
// else at all interfaces.
absl::StatusOr<base::UniqueFd> ListenTcp(const std::string& host, uint16_t port);
// Listens at a free port of this numeric address of this host only.
absl::StatusOr<base::UniqueFd> ListenAtAddress(const std::string& address);
absl::StatusOr<uint16_t> PortOf(int socket);

// Retries until the deadline, because the listener may start later. DEADLINE_EXCEEDED has the
// reason of the last failure. `look` is called from time to time, and its error ends the call.
absl::StatusOr<base::UniqueFd> DialTcp(const std::string& host, uint16_t port,
                                       const base::Deadline& deadline,
                                       const std::function<absl::Status()>& look = nullptr);
// One attempt, of at most two seconds for each of the host's addresses. UNAVAILABLE if no process
// listens there, DEADLINE_EXCEEDED if the host does not answer.
absl::StatusOr<base::UniqueFd> DialTcpOnce(const std::string& host, uint16_t port,
                                           const base::Deadline& deadline);
// Accepts without blocking; invalid if there is no connection.
base::UniqueFd AcceptTcp(int listener);

// Numeric addresses without ports, such as "10.0.0.7".
std::string LocalAddress(int socket);
std::string PeerAddress(int socket);

// Whether bytes are in flight to the peer's host. Then a beat would add no information. The less is
// in flight, the sooner TCP retransmits after a loss.
bool HasUnderway(int socket);

// For a connection that carries data, whose peer reads only when its program wants to. While the
// peer does not read, its window is closed, and TCP_USER_TIMEOUT would end the connection although
// both ends live (tcp(7)). Also limits the bytes in flight within a host, so that they are still in
// a cache when the peer reads them.
void TuneForData(int socket);

// Blocks for at most a few seconds; the peer always reads.
absl::Status SendAll(int socket, const std::string& bytes);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TCP_SOCKET_H_
