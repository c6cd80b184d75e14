// Abstract Unix sockets that carry one bounded record and some descriptors at a time.
#ifndef GEMINID_COLLECTIVES_SHM_SEQPACKET_H_
#define GEMINID_COLLECTIVES_SHM_SEQPACKET_H_

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace geminid::collectives {

// `name` is hashed into the socket's name: any length, bound to the effective user id.
// ALREADY_EXISTS when another process listens under it.
absl::StatusOr<base::UniqueFd> ListenAbstract(const std::string& name, int backlog);
// UNAVAILABLE when nobody listens; PERMISSION_DENIED when the listener is another user's.
absl::StatusOr<base::UniqueFd> ConnectAbstract(const std::string& name);
// True when the process at the other end had our effective user id as it connected or listened.
bool PeerIsSameUser(int socket);

// RESOURCE_EXHAUSTED names the limit where more descriptors are on their way between processes than
// this one may have.
absl::Status SendRecord(int socket, std::span<const std::byte> record, std::span<const int> fds);
// Does not block (UNAVAILABLE if nothing is there or the peer hung up). `record` is filled exactly;
// anything shorter or longer is INVALID_ARGUMENT. RESOURCE_EXHAUSTED names the limit where this
// process may not have all of the descriptors.
absl::StatusOr<std::vector<base::UniqueFd>> ReceiveRecord(int socket, std::span<std::byte> record,
                                                          size_t max_fds);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_SHM_SEQPACKET_H_
