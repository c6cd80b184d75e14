// TCP sockets of the coordinator and its ranks.
#ifndef GEMINID_COLLECTIVES_GLOO_TCP_H_
#define GEMINID_COLLECTIVES_GLOO_TCP_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/deadline.h"
#include "base/unique_fd.h"

namespace geminid::collectives {

// Listens on `port` (0: any free one) of the loopback interface if `host` is a loopback name, else
// of all interfaces.
absl::StatusOr<base::UniqueFd> ListenTcp(const std::string& host, uint16_t port);
absl::StatusOr<uint16_t> PortOf(int socket);

// Tries until the deadline, because the listener may start later.
absl::StatusOr<base::UniqueFd> ConnectTcp(const std::string& host, uint16_t port,
                                          const base::Deadline& deadline);
// One attempt. UNAVAILABLE if nobody listens there, DEADLINE_EXCEEDED if the host does not answer.
absl::StatusOr<base::UniqueFd> ConnectTcpOnce(const std::string& host, uint16_t port);
// Accepts without blocking; an invalid descriptor if nobody is there.
base::UniqueFd AcceptTcp(int listener);

// Numeric addresses without ports, "10.0.0.7".
std::string LocalAddress(int socket);
std::string PeerAddress(int socket);

// Whether something is on its way to the other end's host. More of it says nothing new, and the
// less there is, the sooner TCP sends it again after a loss.
bool HasUnderway(int socket);

// Blocks for at most a few seconds; the peer always reads.
absl::Status SendAll(int socket, const std::string& bytes);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_GLOO_TCP_H_
