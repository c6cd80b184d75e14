#include <utility>

#include "client/src/session_impl.h"
#include "client/src/wire.h"
#include "proto/shm/lease.h"

namespace geminid {

std::optional<Lease> Session::TryLease(ChunkId chunk) {
  if (impl_->fork_guard->in_child()) return std::nullopt;
  const ChunkTable::Chunk* found = impl_->chunks.Find(chunk);
  if (found == nullptr) return std::nullopt;
  shm::ClientSegment* client = impl_->segments.client();
  shm::StateWord held;
  if (!shm::TryAcquireLease(impl_->segments.state()->state[Index(chunk)],
                            client->lease[Index(chunk)], &held)) {
    client->counters.lease_misses.fetch_add(1, std::memory_order_relaxed);
    return std::nullopt;
  }
  client->counters.leases_acquired.fetch_add(1, std::memory_order_relaxed);
  return Lease(this, chunk, impl_->arena + held.device_offset(),
               found->bytes.load(std::memory_order_relaxed));
}

absl::StatusOr<Lease> Session::Use(ChunkId chunk, absl::Duration timeout) {
  if (absl::Status usable = impl_->CheckUsable(); !usable.ok()) return usable;
  return impl_->on_demand_loader->Use(chunk, timeout);
}

uint32_t SessionImpl::Holds(ChunkId chunk) const {
  const uint64_t word = segments.client()->lease[Index(chunk)].load(std::memory_order_acquire);
  return shm::LeaseWord::Decode(word).count;
}

void Session::ReleaseHold(ChunkId chunk, bool dirty) {
  if (impl_->fork_guard->in_child()) return;
  if (dirty && Home(chunk) != nullptr) {
    impl_->ReleaseDirtyHold(chunk);
  } else {
    shm::ReleaseLease(impl_->segments.client()->lease[Index(chunk)]);
  }
}

// If the hold were given back first, the daemon could take the copy for clean and drop it. So the
// handler of the answer gives it back, before answers to later requests are handled.
void SessionImpl::ReleaseDirtyHold(ChunkId chunk) {
  on_demand_loader->NoteDirtyRelease(chunk);
  shm::Request request = MakeRequest(shm::RequestOp::kTransition, chunk);
  request.argument = static_cast<uint64_t>(ChunkState::kHold) | shm::kDirtyBit;
  port->Submit(request, [this, chunk](const Answer& answer) {
    // Refused by a living daemon: only the hold protects the written data, so it stays. Without a
    // daemon nothing is evicted.
    const bool refused = answer.response.op == shm::ResponseOp::kError;
    if (!refused) shm::ReleaseLease(segments.client()->lease[Index(chunk)]);
    on_demand_loader->NoteReleased(chunk);
  });
}

void Lease::Release() {
  Session* const session = std::exchange(session_, nullptr);
  data = nullptr;
  size = 0;
  if (session != nullptr) session->ReleaseHold(chunk_, std::exchange(dirty_, false));
}

void Lease::ReleaseAfter(Stream& stream) {
  Session* const session = std::exchange(session_, nullptr);
  data = nullptr;
  size = 0;
  if (session == nullptr) return;
  stream.CallBack([session, chunk = chunk_, dirty = std::exchange(dirty_, false)] {
    session->ReleaseHold(chunk, dirty);
  });
}

}  // namespace geminid
