// Abstract Unix sockets that carry one bounded record and a few descriptors at a time.
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

// `name` may have any length: its hash, with the effective user id, names the socket.
// ALREADY_EXISTS if another process listens under that name.
absl::StatusOr<base::UniqueFd> ListenAbstract(const std::string& name, int backlog);
// UNAVAILABLE if no process listens; PERMISSION_DENIED if the listener belongs to another user.
absl::StatusOr<base::UniqueFd> ConnectAbstract(const std::string& name);
// Whether the peer had this process's effective user id when it connected or began to listen.
bool PeerIsSameUser(int socket);

// RESOURCE_EXHAUSTED names the limit, if more descriptors are in flight between processes than this
// process may have.
absl::Status SendRecord(int socket, std::span<const std::byte> record, std::span<const int> fds);
// Does not block: UNAVAILABLE if there is no record or the peer has closed. `record` must have the
// record's exact size; otherwise INVALID_ARGUMENT. RESOURCE_EXHAUSTED names the limit, if this
// process may not have all of the descriptors.
absl::StatusOr<std::vector<base::UniqueFd>> ReceiveRecord(int socket, std::span<std::byte> record,
                                                          size_t max_fds);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_SHM_SEQPACKET_H_
