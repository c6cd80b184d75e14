#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "client/src/session_impl.h"
#include "client/src/session_internal.h"
#include "client/src/wire.h"

namespace geminid {
namespace {

// The pool's descriptor has arrived over the attach socket before the call returned.
absl::StatusOr<base::UniqueFd> ReceivePool(SessionImpl& impl,
                                           const Control::Allocation& allocation) {
  for (;;) {
    GEMINID_ASSIGN_OR_RETURN(ReceivedMemory memory, impl.attach.ReceiveMemory());
    // An earlier call that timed out may have left its pool here.
    if (memory.message.pool != allocation.pool) continue;
    if (memory.message.type != shm::MemoryType::kHostPool ||
        memory.message.bytes != allocation.pool_bytes) {
      return absl::InternalError("Allocate: the daemon sent another pool than it announced");
    }
    return std::move(memory.fd);
  }
}

// Null for memory that this process has mapped already.
absl::StatusOr<std::byte*> MapPool(SessionImpl& impl, const Control::Allocation& allocation,
                                   bool is_elsewhere) {
  GEMINID_ASSIGN_OR_RETURN(const base::UniqueFd pool, ReceivePool(impl, allocation));
  if (is_elsewhere) return nullptr;
  GEMINID_ASSIGN_OR_RETURN(
      base::Mapping mapping,
      base::Mapping::Map(pool, allocation.pool_bytes, {.populate = true, .revocable = true}));
  GEMINID_RETURN_IF_ERROR(impl.device->RegisterHost(std::span(mapping.data(), mapping.bytes())));
  return impl.chunks.AddPool(allocation.pool, std::move(mapping));
}

bool IsSane(const Control::Allocation& allocation, const std::vector<ChunkSpec>& specs) {
  for (size_t i = 0; i < specs.size(); ++i) {
    if (Index(allocation.chunks[i]) >= shm::kMaxChunks) return false;
    if (specs[i].has_home &&
        (allocation.pool_offsets[i] > allocation.pool_bytes ||
         specs[i].bytes > allocation.pool_bytes - allocation.pool_offsets[i])) {
      return false;
    }
  }
  return true;
}

}  // namespace

absl::StatusOr<std::vector<ChunkHandle>> SessionImpl::Obtain(const std::vector<ChunkSpec>& specs,
                                                             bool claim) {
  GEMINID_RETURN_IF_ERROR(CheckUsable());
  if (specs.empty()) return std::vector<ChunkHandle>();
  const std::lock_guard lock(memory_mutex);
  GEMINID_ASSIGN_OR_RETURN(Control::Allocation allocation, control->Allocate(specs, claim));
  absl::StatusOr<std::byte*> pool = nullptr;
  if (!IsSane(allocation, specs)) {
    pool = absl::InternalError("Allocate: the daemon's answer is invalid");
  } else if (allocation.pool_bytes > 0) {
    pool = MapPool(*this, allocation, specs.front().kind == ChunkKind::kShared);
  }
  if (!pool.ok()) {
    if (!claim) (void)control->Free(allocation.chunks);
    return pool.status();
  }
  std::vector<ChunkHandle> handles;
  for (size_t i = 0; i < specs.size(); ++i) {
    const uint64_t offset = allocation.pool_offsets[i];
    std::byte* const home = specs[i].has_home && *pool != nullptr ? *pool + offset : nullptr;
    chunks.Add(allocation.chunks[i], specs[i].kind, specs[i].bytes, allocation.pool, offset, home);
    handles.push_back({allocation.chunks[i], home, specs[i].bytes});
  }
  return handles;
}

absl::StatusOr<std::vector<ChunkHandle>> Session::Allocate(const std::vector<ChunkSpec>& specs) {
  return impl_->Obtain(specs, /*claim=*/false);
}

absl::StatusOr<std::vector<ChunkHandle>> Claim(Session& session,
                                               const std::vector<ChunkSpec>& specs) {
  return SessionImpl::Of(session).Obtain(specs, /*claim=*/true);
}

absl::Status FreeUnclaimed(Session& session) {
  SessionImpl& impl = SessionImpl::Of(session);
  if (impl.successor == 0) return absl::OkStatus();
  const std::lock_guard lock(impl.memory_mutex);
  return impl.control->FreeOlder();
}

absl::Status Session::Free(std::span<const ChunkId> chunks) {
  GEMINID_RETURN_IF_ERROR(impl_->CheckUsable());
  if (chunks.empty()) return absl::OkStatus();
  const std::lock_guard lock(impl_->memory_mutex);
  GEMINID_RETURN_IF_ERROR(impl_->control->Free(chunks));
  for (const ChunkId chunk : chunks) impl_->on_demand_loader->Forget(chunk);
  for (const base::Mapping& pool : impl_->chunks.Remove(chunks)) {
    impl_->device->UnregisterHost(std::span(pool.data(), pool.bytes()));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> HostRoom(Session& session) {
  SessionImpl& impl = SessionImpl::Of(session);
  GEMINID_RETURN_IF_ERROR(impl.CheckUsable());
  GEMINID_ASSIGN_OR_RETURN(const uint64_t share, impl.control->HostShare());
  const std::lock_guard lock(impl.memory_mutex);
  return share - std::min(share, impl.chunks.host_bytes());
}

absl::StatusOr<Plan> Session::MakePlan(const Trace& trace, const PlanRequest& request) {
  GEMINID_RETURN_IF_ERROR(impl_->CheckUsable());
  return impl_->control->MakePlan(trace, request);
}

absl::Status AwaitTransfers(Session& session, absl::Duration timeout) {
  return SessionImpl::Of(session).transfers->AwaitAll(timeout);
}

bool ClaimArena(Session& session) { return !SessionImpl::Of(session).arena_claimed.exchange(true); }

bool IsArenaClaimed(const Session& session) {
  return SessionImpl::Of(session).arena_claimed.load();
}

void UnclaimArena(Session& session) { SessionImpl::Of(session).arena_claimed.store(false); }

absl::StatusOr<MemoryUse> Session::GetMemoryUse() {
  GEMINID_RETURN_IF_ERROR(impl_->CheckUsable());
  return impl_->control->GetMemoryUse(impl_->session_id);
}

absl::StatusOr<uint64_t> Session::HostBytes() {
  GEMINID_ASSIGN_OR_RETURN(const MemoryUse use, GetMemoryUse());
  return use.host_bytes;
}

}  // namespace geminid
