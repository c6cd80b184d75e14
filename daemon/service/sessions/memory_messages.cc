#include "daemon/service/sessions/memory_messages.h"

#include <fcntl.h>

#include "base/status_macros.h"

namespace geminid::service {

MemoryToPass PoolToPass(shm::PoolId id, const memory::HostPool& pool) {
  MemoryToPass passed;
  passed.message.magic = shm::kMemoryMagic;
  passed.message.type = shm::MemoryType::kHostPool;
  passed.message.pool = id;
  passed.message.bytes = pool.bytes();
  passed.fd = base::UniqueFd(::fcntl(pool.fd().get(), F_DUPFD_CLOEXEC, 0));
  return passed;
}

std::vector<MemoryToPass> ArenaToPass(const memory::DeviceArena& arena) {
  std::vector<MemoryToPass> passed;
  uint64_t offset = 0;
  const std::vector<memory::DeviceArena::Slab> slabs = arena.slabs();
  for (size_t i = 0; i < slabs.size(); ++i) {
    const memory::DeviceArena::Slab& slab = slabs[i];
    MemoryToPass& each = passed.emplace_back();
    each.message.magic = shm::kMemoryMagic;
    each.message.type = shm::MemoryType::kDeviceSlab;
    each.message.slab = static_cast<uint32_t>(i);
    each.message.bytes = slab.bytes;
    each.message.arena_offset = offset;
    each.fd = base::UniqueFd(::fcntl(slab.fd->get(), F_DUPFD_CLOEXEC, 0));
    offset += slab.bytes;
  }
  return passed;
}

absl::Status Pass(const ClientSession& session, std::span<const MemoryToPass> memory) {
  for (const MemoryToPass& each : memory) {
    if (!each.fd.valid()) {
      return absl::ResourceExhaustedError(
          "the daemon has no descriptor left to pass memory with; raise its limit of open files "
          "(LimitNOFILE=)");
    }
    GEMINID_RETURN_IF_ERROR(session.SendMemory(each.message, each.fd));
  }
  return absl::OkStatus();
}

}  // namespace geminid::service
