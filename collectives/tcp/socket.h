// TCP sockets between ranks, and between a rank and the coordinator. None blocks, and writing to
// one whose other end is gone is an error, not a signal.
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

// Listens on `port` (0: any free one) of the loopback interface if `host` is a loopback name, else
// of all interfaces.
absl::StatusOr<base::UniqueFd> ListenTcp(const std::string& host, uint16_t port);
// Listens at a free port of this numeric address of this host alone.
absl::StatusOr<base::UniqueFd> ListenAtAddress(const std::string& address);
absl::StatusOr<uint16_t> PortOf(int socket);

// Tries until the deadline, because the listener may start later; DEADLINE_EXCEEDED says why it
// failed last. `look` is called now and then, and its error ends it.
absl::StatusOr<base::UniqueFd> DialTcp(const std::string& host, uint16_t port,
                                       const base::Deadline& deadline,
                                       const std::function<absl::Status()>& look = nullptr);
// One attempt, of at most two seconds for each of the host's addresses. UNAVAILABLE if nobody
// listens there, DEADLINE_EXCEEDED if the host does not answer.
absl::StatusOr<base::UniqueFd> DialTcpOnce(const std::string& host, uint16_t port,
                                           const base::Deadline& deadline);
// Accepts without blocking; an invalid descriptor if nobody is there.
base::UniqueFd AcceptTcp(int listener);

// Numeric addresses without ports, "10.0.0.7".
std::string LocalAddress(int socket);
std::string PeerAddress(int socket);

// Whether something is on its way to the other end's host. More of it says nothing new, and the
// less there is, the sooner TCP sends it again after a loss.
bool HasUnderway(int socket);

// For a connection that carries data, whose other end reads only when its program wants to. While
// that end does not read, its window is closed, and TCP_USER_TIMEOUT would end the connection
// although both ends live (tcp(7)). Within a host little is under way, so that it is still in a
// cache when it is read.
void TuneForData(int socket);

// Blocks for at most a few seconds; the peer always reads.
absl::Status SendAll(int socket, const std::string& bytes);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TCP_SOCKET_H_
