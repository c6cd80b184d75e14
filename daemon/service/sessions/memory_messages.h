// Passes memory to a client: messages on its attach connection, each with a descriptor.
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_MEMORY_MESSAGES_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_MEMORY_MESSAGES_H_

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/unique_fd.h"
#include "daemon/memory/device_arena.h"
#include "daemon/memory/host_pool.h"
#include "daemon/service/sessions/client_session.h"

namespace geminid::service {

struct MemoryToPass {
  shm::Memory message = {};
  base::UniqueFd fd;  // a duplicate; invalid: the daemon has no descriptor left
};

MemoryToPass PoolToPass(shm::PoolId id, const memory::HostPool& pool);
// The slabs in order.
std::vector<MemoryToPass> ArenaToPass(const memory::DeviceArena& arena);
// The client can make it last, so call it without the mutex of the table. RESOURCE_EXHAUSTED: a
// descriptor is missing; see ClientSession::SendMemory for other errors.
absl::Status Pass(const ClientSession& session, std::span<const MemoryToPass> memory);

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_MEMORY_MESSAGES_H_
