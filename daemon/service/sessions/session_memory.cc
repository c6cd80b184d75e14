#include "daemon/service/sessions/session_memory.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "daemon/memory/host_arena.h"
#include "daemon/service/heritage/inherited_descriptors.h"
#include "daemon/service/sessions/memory_messages.h"

namespace geminid::service {
namespace {

// A slice takes about twenty microseconds.
constexpr size_t kChunksInASlice = 16;

}  // namespace

// Also takes back memory that the client was passed and its session does not get.
void SessionMemory::Abandon(const core::Promise& promise, Garbage garbage) {
  garbage.charges.push_back(promise.charge);
  reclaimer_->Destroy(std::move(garbage));
}

void SessionMemory::NoteAllocation(shm::Tier tier, core::Time began) {
  const Locked locked = table_->Lock();
  statistics_->NoteAllocation(locked, tier, Now() - began);
}

absl::StatusOr<core::Allocation> SessionMemory::Allocate(const SessionPtr& session,
                                                         const std::vector<core::ChunkSpec>& specs,
                                                         uint64_t number, bool again) {
  absl::StatusOr<core::Promise> promise;
  if (again) GEMINID_RETURN_IF_ERROR(FreeMadeBy(session, number, number));
  std::vector<core::ChunkSpec> copy = specs;
  {
    const Locked locked = table_->Lock();
    promise = locked.engine().BeginAllocation(session->id(), std::move(copy), number);
    if (!promise.ok()) return promise.status();
  }
  Garbage made;
  if (promise->bytes == 0) return EnterChunks(session, *promise, &made);
  const core::Time began = Now();
  absl::StatusOr<core::Allocation> allocation = MakePool(session, *promise, &made);
  NoteAllocation(shm::Tier::kHost, began);
  if (!allocation.ok()) Abandon(*promise, std::move(made));
  return allocation;
}

absl::Status SessionMemory::FreeMadeBy(const SessionPtr& session, uint64_t first, uint64_t last) {
  absl::StatusOr<std::vector<shm::ChunkId>> made;
  {
    const Locked locked = table_->Lock();
    made = locked.engine().MadeBy(session->id(), first, last);
  }
  if (!made.ok()) return made.status();
  return FreeInSlices(session, *std::move(made));
}

absl::Status SessionMemory::FreeOlder(const SessionPtr& session, uint64_t number) {
  if (number == 0) return absl::OkStatus();
  return FreeMadeBy(session, 0, number - 1);
}

// The pool becomes the session's with the first of its chunks.
absl::StatusOr<core::Allocation> SessionMemory::EnterChunks(const SessionPtr& session,
                                                            const core::Promise& promise,
                                                            Garbage* made) {
  absl::StatusOr<std::optional<core::Allocation>> entered;
  table_->InSlices([&](const Locked& locked) {
    entered = locked.engine().ContinueAllocation(promise.charge, kChunksInASlice);
    if (entered.ok() && !made->pools.empty()) {
      session->pools.emplace(promise.pool, std::move(made->pools.back()));
      made->pools.clear();
      made->descriptor_names.clear();
    }
    return !entered.ok() || entered->has_value();
  });
  if (!entered.ok()) return entered.status();
  return **std::move(entered);
}

absl::StatusOr<core::Allocation> SessionMemory::MakePool(const SessionPtr& session,
                                                         const core::Promise& promise,
                                                         Garbage* made) {
  memory::PoolOptions options = PoolOptionsOf(*session);
  absl::StrAppend(&options.name, "-pool", shm::Value(promise.pool));
  options.bytes = promise.bytes;
  if (promise.is_elsewhere) {
    options.backing = memory::PageBacking::kSparse;
  } else {
    options.huge_pages = options_->huge_pages;
  }
  GEMINID_ASSIGN_OR_RETURN(memory::HostPool pool,
                           memory::HostPool::Create(options, options_->machine));
  made->pools.push_back(std::move(pool));
  made->descriptor_names.push_back(PoolName(session->id(), promise.pool));
  const uint64_t refills = store_->refills();
  store_->Put(made->descriptor_names.back(), made->pools.back().fd().get());
  const MemoryToPass passed = PoolToPass(promise.pool, made->pools.back());
  GEMINID_RETURN_IF_ERROR(Pass(*session, std::span(&passed, 1)));
  absl::StatusOr<core::Allocation> allocation = EnterChunks(session, promise, made);
  if (allocation.ok() && store_->refills() != refills) store_->PutWholeSession(session->id());
  return allocation;
}

memory::PoolOptions SessionMemory::PoolOptionsOf(const ClientSession& session) {
  memory::PoolOptions options;
  options.name = absl::StrCat("geminid-session", shm::Value(session.id()));
  options.cancelled = &cancelled_;
  options.admission = &admission_;
  options.numa = options_->numa;
  options.numa_node = session.device().numa_node;
  if (options.numa_node == shm::kNoNumaNode) {
    // Launchers give ranks and their cores to the NUMA nodes in order.
    options.numa_node = memory::NodeOfLocalRank(
        session.spec().local_rank, session.spec().local_world_size, options_->machine.nodes);
  }
  return options;
}

absl::StatusOr<core::Allocation> SessionMemory::Claim(const SessionPtr& session,
                                                      const std::vector<core::ChunkSpec>& specs,
                                                      uint64_t number) {
  absl::StatusOr<core::Allocation> allocation;
  std::vector<MemoryToPass> passed;
  {
    const Locked locked = table_->Lock();
    allocation = locked.engine().Claim(session->id(), specs, number);
    if (!allocation.ok() || allocation->pool == core::kNoPool) return allocation;
    const auto pool = session->pools.find(allocation->pool);
    if (pool == session->pools.end()) {
      return absl::InternalError("a retained pool is missing");
    }
    passed.push_back(PoolToPass(pool->first, pool->second));
  }
  GEMINID_RETURN_IF_ERROR(Pass(*session, passed));
  return allocation;
}

absl::Status SessionMemory::Free(const SessionPtr& session, std::vector<shm::ChunkId> chunks,
                                 bool again) {
  if (again) {
    std::vector<shm::ChunkId> there;
    size_t next = 0;
    table_->InSlices([&](const Locked& locked) {
      const size_t end = std::min(next + kChunksInASlice, chunks.size());
      for (; next < end; ++next) {
        if (locked.engine().FindChunk(session->id(), chunks[next]).has_value()) {
          there.push_back(chunks[next]);
        }
      }
      return next == chunks.size();
    });
    chunks = std::move(there);
  }
  return FreeInSlices(session, std::move(chunks));
}

absl::Status SessionMemory::FreeInSlices(const SessionPtr& session,
                                         std::vector<shm::ChunkId> chunks) {
  std::sort(chunks.begin(), chunks.end());
  if (std::adjacent_find(chunks.begin(), chunks.end()) != chunks.end()) {
    return absl::InvalidArgumentError("a chunk is named twice");
  }
  std::vector<std::vector<shm::ChunkId>> parts(1);
  for (const shm::ChunkId chunk : chunks) {
    if (parts.back().size() == kChunksInASlice) parts.emplace_back();
    parts.back().push_back(chunk);
  }
  absl::Status status;
  size_t next = 0;
  table_->InSlices([&](const Locked& locked) {
    status = locked.engine().CheckFree(session->id(), parts[next]);
    return !status.ok() || ++next == parts.size();
  });
  if (!status.ok()) return status;
  Garbage garbage;
  next = 0;
  table_->InSlices([&](const Locked& locked) {
    absl::StatusOr<core::Releases> releases = locked.engine().Free(session->id(), parts[next]);
    status = releases.status();
    if (releases.ok()) reclaimer_->Collect(locked, *releases, /*died=*/false, &garbage);
    return !status.ok() || ++next == parts.size();
  });
  reclaimer_->Destroy(std::move(garbage));  // before the caller is told
  return status;
}

absl::StatusOr<CreatedArena> SessionMemory::CreateArena(const SessionPtr& session, uint64_t bytes,
                                                        bool again) {
  absl::StatusOr<core::Promise> promise;
  if (again) {
    std::vector<MemoryToPass> slabs;
    {
      const Locked locked = table_->Lock();
      if (session->arena != nullptr) slabs = ArenaToPass(*session->arena);
    }
    if (!slabs.empty()) {
      GEMINID_RETURN_IF_ERROR(Pass(*session, slabs));
      CreatedArena made = {.slabs = static_cast<uint32_t>(slabs.size())};
      for (const MemoryToPass& slab : slabs) made.bytes += slab.message.bytes;
      return made;
    }
  }
  {
    const Locked locked = table_->Lock();
    promise = locked.engine().BeginArena(session->id(), bytes);
    if (!promise.ok()) return promise.status();
  }
  Garbage made;
  const core::Time began = Now();
  absl::StatusOr<CreatedArena> arena = MakeArena(session, *promise, &made);
  NoteAllocation(shm::Tier::kDevice, began);
  if (!arena.ok()) Abandon(*promise, std::move(made));
  return arena;
}

absl::StatusOr<CreatedArena> SessionMemory::MakeArena(const SessionPtr& session,
                                                      const core::Promise& promise, Garbage* made) {
  GEMINID_RETURN_IF_ERROR(MakeSlabs(*session, promise.bytes, made));
  std::unique_ptr<memory::DeviceArena>& arena = made->arenas.back().memory;
  const CreatedArena result = {promise.bytes, static_cast<uint32_t>(arena->slabs().size())};
  const uint64_t refills = store_->refills();
  for (const auto& [name, fd] : SlabsToStore(*session, *arena)) {
    made->descriptor_names.push_back(name);
    store_->Put(name, fd);
  }
  GEMINID_RETURN_IF_ERROR(Pass(*session, ArenaToPass(*arena)));
  {
    const Locked locked = table_->Lock();
    GEMINID_RETURN_IF_ERROR(locked.engine().FinishArena(promise.charge));
    session->arena = std::move(arena);
  }
  if (store_->refills() != refills) store_->PutWholeSession(session->id());
  return result;
}

absl::Status SessionMemory::MakeSlabs(const ClientSession& session, uint64_t bytes, Garbage* made) {
  const core::DeviceDescription& device = session.device();
  if (device.kind == shm::DeviceKind::kCuda) {
    GEMINID_ASSIGN_OR_RETURN(std::unique_ptr<gpus::GpuArena> arena,
                             options_->gpus->NewArena(device.index));
    gpus::GpuArena* const unfilled = arena.get();
    made->arenas.push_back({.memory = std::move(arena), .holder = {}});
    return options_->gpus->Fill(device.index, session.spec().tenant, bytes, cancelled_, unfilled);
  }
  memory::PoolOptions options = PoolOptionsOf(session);
  options.bytes = bytes;
  options.backing = options_->arena_backing;
  options.numa_strict = device.numa_node != shm::kNoNumaNode;
  GEMINID_ASSIGN_OR_RETURN(std::unique_ptr<memory::HostArena> arena,
                           memory::HostArena::Create(options, options_->machine));
  made->arenas.push_back({.memory = std::move(arena), .holder = {}});
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> SessionMemory::HostShare(const SessionPtr& session) {
  os::HugePages reserved;
  if (options_->huge_pages) {
    reserved = os::ReadHugePages();
    // MakePool goes by the pages that were free when the daemon started.
    reserved.free_pages = std::min(reserved.free_pages, options_->machine.huge_pages.free_pages);
  }
  const uint64_t free_bytes = memory::BytesForPools(reserved, admission_.promised_bytes());
  const Locked locked = table_->Lock();
  return locked.engine().HostShare(session->id(), free_bytes);
}

absl::Status SessionMemory::ReleaseArena(const SessionPtr& session, bool again) {
  Garbage garbage;
  {
    const Locked locked = table_->Lock();
    if (again && session->arena == nullptr) return absl::OkStatus();
    absl::StatusOr<core::Releases> releases = locked.engine().ReleaseArena(session->id(), Now());
    if (!releases.ok()) return releases.status();
    reclaimer_->Collect(locked, *releases, /*died=*/false, &garbage);
  }
  reclaimer_->Destroy(std::move(garbage));  // before the caller is told
  return absl::OkStatus();
}

}  // namespace geminid::service
