// The part of the hub that makes memory: it is charged first, under the mutex; then made and passed
// to the client, without it; and only then becomes the session's. What fails on the way is taken
// back from the client before its charge ends.
#include <fcntl.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "daemon/memory/host_arena.h"
#include "daemon/service/sessions/hub.h"

namespace geminid::service {
namespace {

// About twenty microseconds.
constexpr size_t kChunksInASlice = 16;

}  // namespace

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
  std::vector<core::ChunkSpec> copy = specs;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    promise = engine_->BeginAllocation(session->id(), std::move(copy), number);
    if (!promise.ok()) return promise.status();
  }
  Garbage made;
  if (promise->bytes == 0) return EnterChunks(session, *promise, &made);
  const core::Time began = Now();
  absl::StatusOr<core::Allocation> allocation = MakePool(session, *promise, &made);
  CountAllocation(shm::Tier::kHost, began);
  if (!allocation.ok()) Abandon(*promise, std::move(made));
  return allocation;
}

absl::Status Hub::ForgetAllocation(const SessionPtr& session, uint64_t number) {
  absl::StatusOr<std::vector<shm::ChunkId>> made;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    made = engine_->MadeBy(session->id(), number, number);
  }
  if (!made.ok()) return made.status();
  return FreeInSlices(session, *std::move(made));
}

// The pool becomes the session's with the first of its chunks.
absl::StatusOr<core::Allocation> Hub::EnterChunks(const SessionPtr& session,
                                                  const core::Promise& promise, Garbage* made) {
  absl::StatusOr<std::optional<core::Allocation>> entered;
  InSlices([&] {
    entered = engine_->ContinueAllocation(promise.charge, kChunksInASlice);
    if (entered.ok() && !made->pools.empty()) {
      session->pools.emplace(promise.pool, std::move(made->pools.back()));
      made->pools.clear();
      made->keepsakes.clear();
    }
    return !entered.ok() || entered->has_value();
  });
  if (!entered.ok()) return entered.status();
  return **std::move(entered);
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
  const Passed passed = PoolToPass(promise.pool, made->pools.back());
  GEMINID_RETURN_IF_ERROR(Pass(*session, std::span(&passed, 1)));
  absl::StatusOr<core::Allocation> allocation = EnterChunks(session, promise, made);
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

Hub::Passed Hub::PoolToPass(shm::PoolId id, const memory::HostPool& pool) {
  Passed passed;
  passed.message.magic = shm::kMemoryMagic;
  passed.message.type = shm::MemoryType::kHostPool;
  passed.message.pool = id;
  passed.message.bytes = pool.bytes();
  passed.fd = base::UniqueFd(::fcntl(pool.fd().get(), F_DUPFD_CLOEXEC, 0));
  return passed;
}

absl::Status Hub::Pass(const ClientSession& session, std::span<const Passed> passed) {
  for (const Passed& each : passed) {
    if (!each.fd.valid()) {
      return absl::ResourceExhaustedError(
          "the daemon has no descriptor left to pass memory with; raise its limit of open files "
          "(LimitNOFILE=)");
    }
    GEMINID_RETURN_IF_ERROR(session.SendMemory(each.message, each.fd));
  }
  return absl::OkStatus();
}

absl::Status Hub::Free(const SessionPtr& session, std::vector<shm::ChunkId> chunks, bool again) {
  if (again) {
    std::vector<shm::ChunkId> there;
    size_t next = 0;
    InSlices([&] {
      const size_t end = std::min(next + kChunksInASlice, chunks.size());
      for (; next < end; ++next) {
        if (engine_->FindChunk(session->id(), chunks[next]).has_value()) {
          there.push_back(chunks[next]);
        }
      }
      return next == chunks.size();
    });
    chunks = std::move(there);
  }
  return FreeInSlices(session, std::move(chunks));
}

absl::Status Hub::FreeInSlices(const SessionPtr& session, std::vector<shm::ChunkId> chunks) {
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
  InSlices([&] {
    status = engine_->CheckFree(session->id(), parts[next]);
    return !status.ok() || ++next == parts.size();
  });
  if (!status.ok()) return status;
  Garbage garbage;
  next = 0;
  InSlices([&] {
    absl::StatusOr<core::Releases> releases = engine_->Free(session->id(), parts[next]);
    status = releases.status();
    if (releases.ok()) Collect(*releases, /*died=*/false, &garbage);
    return !status.ok() || ++next == parts.size();
  });
  Destroy(std::move(garbage));  // before the caller is told
  return status;
}

absl::StatusOr<Hub::ArenaMade> Hub::CreateArena(const SessionPtr& session, uint64_t bytes,
                                                bool again) {
  absl::StatusOr<core::Promise> promise;
  if (again) {
    std::vector<Passed> slabs;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (session->arena != nullptr) slabs = ArenaToPass(*session->arena);
    }
    if (!slabs.empty()) {
      GEMINID_RETURN_IF_ERROR(Pass(*session, slabs));
      ArenaMade made = {.slabs = static_cast<uint32_t>(slabs.size())};
      for (const Passed& slab : slabs) made.bytes += slab.message.bytes;
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
  GEMINID_RETURN_IF_ERROR(Pass(*session, ArenaToPass(*arena)));
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

std::vector<Hub::Passed> Hub::ArenaToPass(const memory::DeviceArena& arena) {
  std::vector<Passed> passed;
  uint64_t offset = 0;
  const std::vector<memory::DeviceArena::Slab> slabs = arena.slabs();
  for (size_t i = 0; i < slabs.size(); ++i) {
    const memory::DeviceArena::Slab& slab = slabs[i];
    Passed& each = passed.emplace_back();
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

}  // namespace geminid::service
