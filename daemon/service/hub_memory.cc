// The part of the hub that makes memory: it is charged first, under the mutex; then made and passed
// to the client, without it; and only then becomes the session's. What fails on the way is taken
// back from the client before its charge ends.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "daemon/memory/host_arena.h"
#include "daemon/service/hub.h"

namespace geminid::service {

// A client may have been passed what its session then does not get.
void Hub::Abandon(const core::Promise& promise, Garbage garbage) {
  garbage.charges.push_back(promise.charge);
  Destroy(std::move(garbage));
}

absl::StatusOr<core::Allocation> Hub::Allocate(const SessionPtr& session,
                                               const std::vector<core::ChunkSpec>& specs,
                                               uint64_t number, bool again) {
  absl::StatusOr<core::Promise> promise;
  if (again) GEMINID_RETURN_IF_ERROR(ForgetAllocation(session, number));
  {
    std::lock_guard<std::mutex> lock(mutex_);
    promise = engine_->BeginAllocation(session->id(), specs, number);
    if (!promise.ok()) return promise.status();
    if (promise->bytes == 0) return engine_->FinishAllocation(promise->charge);
  }
  Garbage made;
  const core::Time began = Now();
  absl::StatusOr<core::Allocation> allocation = MakePool(session, *promise, &made);
  CountAllocation(shm::Tier::kHost, began);
  if (!allocation.ok()) Abandon(*promise, std::move(made));
  return allocation;
}

absl::Status Hub::ForgetAllocation(const SessionPtr& session, uint64_t number) {
  Garbage garbage;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    absl::StatusOr<core::Releases> releases = engine_->ForgetAllocation(session->id(), number);
    if (!releases.ok()) return releases.status();
    Collect(*releases, /*died=*/false, &garbage);
  }
  Destroy(std::move(garbage));
  return absl::OkStatus();
}

absl::StatusOr<core::Allocation> Hub::MakePool(const SessionPtr& session,
                                               const core::Promise& promise, Garbage* made) {
  memory::PoolOptions options = PoolOptionsOf(*session);
  absl::StrAppend(&options.name, "-pool", shm::Value(promise.pool));
  options.bytes = promise.bytes;
  if (promise.is_elsewhere) {
    options.backing = memory::Backing::kSparse;
  } else {
    options.huge_pages = options_.huge_pages;
  }
  GEMINID_ASSIGN_OR_RETURN(memory::HostPool pool,
                           memory::HostPool::Create(options, options_.machine));
  made->pools.push_back(std::move(pool));
  made->keepsakes.push_back(PoolName(session->id(), promise.pool));
  const uint64_t times_kept = times_kept_.load();
  Keep(made->keepsakes.back(), made->pools.back().fd().get());
  GEMINID_RETURN_IF_ERROR(PassPool(*session, promise.pool, made->pools.back()));
  absl::StatusOr<core::Allocation> allocation = [&] {
    std::lock_guard<std::mutex> lock(mutex_);
    absl::StatusOr<core::Allocation> made_now = engine_->FinishAllocation(promise.charge);
    if (made_now.ok()) session->pools.emplace(promise.pool, std::move(made->pools.back()));
    return made_now;
  }();
  if (allocation.ok() && times_kept_.load() != times_kept) KeepAgain(session->id());
  return allocation;
}

memory::PoolOptions Hub::PoolOptionsOf(const ClientSession& session) {
  memory::PoolOptions options;
  options.name = absl::StrCat("geminid-session", shm::Value(session.id()));
  options.cancelled = &cancelled_;
  options.admission = &admission_;
  options.numa = options_.numa;
  options.numa_node = session.device().numa_node;
  if (options.numa_node == shm::kNoNumaNode) {
    // Launchers give ranks and their cores to the nodes in order.
    options.numa_node = memory::NodeOfLocalRank(
        session.spec().local_rank, session.spec().local_world_size, options_.machine.nodes);
  }
  return options;
}

absl::Status Hub::PassPool(const ClientSession& session, shm::PoolId id,
                           const memory::HostPool& pool) {
  shm::Memory message = {};
  message.magic = shm::kMemoryMagic;
  message.type = shm::MemoryType::kHostPool;
  message.pool = id;
  message.bytes = pool.bytes();
  return session.SendMemory(message, pool.fd());
}

absl::Status Hub::Free(const SessionPtr& session, std::vector<shm::ChunkId> chunks, bool again) {
  Garbage garbage;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (again) {
      std::erase_if(chunks, [&](shm::ChunkId chunk) {
        return !engine_->FindChunk(session->id(), chunk).has_value();
      });
    }
    absl::StatusOr<core::Releases> releases = engine_->Free(session->id(), chunks);
    if (!releases.ok()) return releases.status();
    Collect(*releases, /*died=*/false, &garbage);
  }
  Destroy(std::move(garbage));  // before the caller is told
  return absl::OkStatus();
}

absl::StatusOr<Hub::ArenaMade> Hub::CreateArena(const SessionPtr& session, uint64_t bytes,
                                                bool again) {
  absl::StatusOr<core::Promise> promise;
  if (again) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (session->arena != nullptr) {
      GEMINID_RETURN_IF_ERROR(PassArena(*session, *session->arena));
      ArenaMade made;
      for (const memory::DeviceArena::Slab& slab : session->arena->slabs()) {
        made.bytes += slab.bytes;
        made.slabs += 1;
      }
      return made;
    }
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    promise = engine_->BeginArena(session->id(), bytes);
    if (!promise.ok()) return promise.status();
  }
  Garbage made;
  const core::Time began = Now();
  absl::StatusOr<ArenaMade> arena = MakeArena(session, *promise, &made);
  CountAllocation(shm::Tier::kDevice, began);
  if (!arena.ok()) Abandon(*promise, std::move(made));
  return arena;
}

absl::StatusOr<Hub::ArenaMade> Hub::MakeArena(const SessionPtr& session,
                                              const core::Promise& promise, Garbage* made) {
  GEMINID_RETURN_IF_ERROR(MakeSlabs(*session, promise.bytes, made));
  std::unique_ptr<memory::DeviceArena>& arena = made->arenas.back().memory;
  const ArenaMade result = {promise.bytes, static_cast<uint32_t>(arena->slabs().size())};
  const uint64_t times_kept = times_kept_.load();
  for (const auto& [name, fd] : SlabsToKeep(*session, *arena)) {
    made->keepsakes.push_back(name);
    Keep(name, fd);
  }
  GEMINID_RETURN_IF_ERROR(PassArena(*session, *arena));
  {
    std::lock_guard<std::mutex> lock(mutex_);
    GEMINID_RETURN_IF_ERROR(engine_->FinishArena(promise.charge));
    session->arena = std::move(arena);
  }
  if (times_kept_.load() != times_kept) KeepAgain(session->id());
  return result;
}

absl::Status Hub::MakeSlabs(const ClientSession& session, uint64_t bytes, Garbage* made) {
  const core::DeviceDescription& device = session.device();
  if (device.kind == shm::DeviceKind::kCuda) {
    GEMINID_ASSIGN_OR_RETURN(std::unique_ptr<gpus::GpuArena> arena,
                             options_.gpus->NewArena(device.index));
    gpus::GpuArena* const unfilled = arena.get();
    made->arenas.push_back({.memory = std::move(arena), .holder = {}});
    return options_.gpus->Fill(device.index, session.spec().tenant, bytes, cancelled_, unfilled);
  }
  memory::PoolOptions options = PoolOptionsOf(session);
  options.bytes = bytes;
  options.backing = options_.arena_backing;
  options.numa_strict = device.numa_node != shm::kNoNumaNode;
  GEMINID_ASSIGN_OR_RETURN(std::unique_ptr<memory::HostArena> arena,
                           memory::HostArena::Create(options, options_.machine));
  made->arenas.push_back({.memory = std::move(arena), .holder = {}});
  return absl::OkStatus();
}

absl::Status Hub::PassArena(const ClientSession& session, const memory::DeviceArena& arena) {
  uint64_t offset = 0;
  const std::vector<memory::DeviceArena::Slab> slabs = arena.slabs();
  for (size_t i = 0; i < slabs.size(); ++i) {
    const memory::DeviceArena::Slab& slab = slabs[i];
    shm::Memory message = {};
    message.magic = shm::kMemoryMagic;
    message.type = shm::MemoryType::kDeviceSlab;
    message.slab = static_cast<uint32_t>(i);
    message.bytes = slab.bytes;
    message.arena_offset = offset;
    GEMINID_RETURN_IF_ERROR(session.SendMemory(message, *slab.fd));
    offset += slab.bytes;
  }
  return absl::OkStatus();
}

}  // namespace geminid::service
