// The part of the hub that makes memory: accounts first, under the mutex; then the memory, without
// it; then the descriptor to the client; and the accounts undone if any of that fails.
#include "absl/strings/str_cat.h"
#include "daemon/os/log.h"
#include "daemon/service/hub.h"

namespace geminid::service {

absl::Status Hub::StillOpen(const SessionPtr& session) const {
  // A kept session has a use for its memory too: its next client's.
  const auto found = tables_.sessions.find(session->id());
  if (found != tables_.sessions.end()) return absl::OkStatus();
  return absl::AbortedError("the session ended during the call");
}

absl::StatusOr<core::Allocation> Hub::Allocate(const SessionPtr& session,
                                               const std::vector<core::ChunkSpec>& specs) {
  absl::StatusOr<core::Allocation> allocation;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    allocation = engine_->Allocate(session->id(), specs);
  }
  if (!allocation.ok() || allocation->pool == core::kNoPool) return allocation;
  absl::Status passed = PassPool(session, *allocation);
  if (passed.ok()) return allocation;
  UndoAllocation(session, *allocation);
  return passed;
}

memory::PoolOptions Hub::PoolOptionsOf(const ClientSession& session) const {
  memory::PoolOptions options;
  options.name = absl::StrCat("geminid-session", shm::Value(session.id()));
  options.cancelled = &cancelled_;
  options.numa = options_.numa;
  options.numa_node = session.device().numa_node;
  if (options.numa_node == shm::kNoNumaNode) {
    // Launchers give ranks and their cores to the nodes in order.
    options.numa_node = memory::NodeOfLocalRank(
        session.spec().local_rank, session.spec().local_world_size, options_.machine.nodes);
  }
  return options;
}

absl::Status Hub::PassPool(const SessionPtr& session, const core::Allocation& allocation) {
  memory::PoolOptions options = PoolOptionsOf(*session);
  absl::StrAppend(&options.name, "-pool", shm::Value(allocation.pool));
  options.bytes = allocation.pool_bytes;
  options.huge_pages = options_.huge_pages;
  absl::StatusOr<memory::HostPool> pool = memory::HostPool::Create(options, options_.machine);
  if (!pool.ok()) return pool.status();
  shm::Memory message = {};
  message.magic = shm::kMemoryMagic;
  message.type = shm::MemoryType::kHostPool;
  message.pool = allocation.pool;
  message.bytes = pool->bytes();
  if (absl::Status sent = session->SendMemory(message, pool->fd()); !sent.ok()) return sent;
  std::lock_guard<std::mutex> lock(mutex_);
  if (absl::Status status = StillOpen(session); !status.ok()) return status;
  session->pools.emplace(allocation.pool, *std::move(pool));
  return absl::OkStatus();
}

void Hub::UndoAllocation(const SessionPtr& session, const core::Allocation& allocation) {
  std::lock_guard<std::mutex> lock(mutex_);
  // An error means that the session ended meanwhile, and its chunks with it. There is no pool yet
  // for the shell to release.
  const absl::StatusOr<core::Releases> undone = engine_->Free(session->id(), allocation.chunks);
  if (!undone.ok()) {
    os::Log(os::LogLevel::kDebug, "an allocation ended with its session",
            {{"session", absl::StrCat(shm::Value(session->id()))}});
  }
}

absl::Status Hub::Free(const SessionPtr& session, const std::vector<shm::ChunkId>& chunks) {
  Garbage garbage;  // destroyed after the mutex is free, but before the caller is told
  std::lock_guard<std::mutex> lock(mutex_);
  absl::StatusOr<core::Releases> releases = engine_->Free(session->id(), chunks);
  if (!releases.ok()) return releases.status();
  Collect(*releases, session, &garbage);
  return absl::OkStatus();
}

absl::StatusOr<Hub::ArenaMade> Hub::CreateArena(const SessionPtr& session, uint64_t bytes) {
  ArenaMade made;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    absl::StatusOr<uint64_t> rounded = engine_->CreateArena(session->id(), bytes);
    if (!rounded.ok()) return rounded.status();
    made.bytes = *rounded;
  }
  memory::PoolOptions options = PoolOptionsOf(*session);
  options.bytes = made.bytes;
  options.backing = options_.arena_backing;
  options.numa_strict = session->device().numa_node != shm::kNoNumaNode;
  absl::StatusOr<memory::DeviceArena> arena =
      memory::DeviceArena::Create(options, options_.machine);
  absl::Status status = arena.status();
  if (status.ok()) {
    made.slabs = static_cast<uint32_t>(arena->slabs().size());
    status = PassArena(session, *std::move(arena));
  }
  if (status.ok()) return made;
  std::lock_guard<std::mutex> lock(mutex_);
  // An error means that the session ended meanwhile, and its arena with it.
  (void)engine_->DestroyArena(session->id());
  return status;
}

absl::Status Hub::PassArena(const SessionPtr& session, memory::DeviceArena arena) {
  uint64_t offset = 0;
  for (size_t i = 0; i < arena.slabs().size(); ++i) {
    const memory::HostPool& slab = arena.slabs()[i];
    shm::Memory message = {};
    message.magic = shm::kMemoryMagic;
    message.type = shm::MemoryType::kDeviceSlab;
    message.slab = static_cast<uint32_t>(i);
    message.bytes = slab.bytes();
    message.arena_offset = offset;
    if (absl::Status sent = session->SendMemory(message, slab.fd()); !sent.ok()) return sent;
    offset += slab.bytes();
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (absl::Status status = StillOpen(session); !status.ok()) return status;
  session->arena = std::move(arena);
  return absl::OkStatus();
}

}  // namespace geminid::service
