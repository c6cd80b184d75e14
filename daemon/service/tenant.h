// Who is charged for what a client does.
#ifndef GEMINID_DAEMON_SERVICE_TENANT_H_
#define GEMINID_DAEMON_SERVICE_TENANT_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/os/unix_socket.h"

namespace geminid::service {

// From what the kernel says of the peer, never from what it says itself.
inline std::string TenantOf(const os::Peer& peer) { return absl::StrCat("uid:", peer.uid); }

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_TENANT_H_
