// Snapshots for the operator: plain values, copied out.

#include "daemon/core/engine/engine.h"
#include "daemon/core/engine/engine_state.h"

namespace geminid::core {

std::vector<SessionSnapshot> Engine::Sessions(SessionId from, size_t limit) const {
  std::vector<SessionSnapshot> snapshots;
  for (auto it = sessions_.lower_bound(from); it != sessions_.end(); ++it) {
    if (snapshots.size() >= limit) break;
    const auto& [id, session] = *it;
    if (session->is_ending()) continue;
    SessionSnapshot snapshot{
        .id = id,
        .spec = session->spec,
        .device = session->device,
        .state = session->state,
        .slow = scheduler_.IsSlow(id),
        .opened_at = session->opened_at,
        .host_bytes = session->pool_bytes,
        .arena_bytes = session->arena_bytes(),
        .device_in_use_bytes = ledger_.InUseBytes(session->device_account(), id),
        .chunks = session->chunk_count,
        .moment = session->moment,
        .has_plan = session->plan_moments > 0,
        .evictions = session->evictions,
        .evictions_refused_by_lease = session->evictions_refused_by_lease,
        .queued_transfers = scheduler_.QueuedCount(id),
        .transfers = scheduler_.TotalsOf(id)};
    if (session->state == SessionState::kKept) snapshot.keep_until = session->keep_until;
    if (session->arena.has_value()) {
      snapshot.workspace_bytes = session->arena->top_bytes();
      snapshot.largest_hole_bytes = session->arena->largest_hole_bytes();
      snapshot.fragmentation = session->arena->Fragmentation();
    }
    for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost}) {
      snapshot.in_flight[Index(direction)] = scheduler_.FlightOf(id, direction);
    }
    snapshots.push_back(std::move(snapshot));
  }
  return snapshots;
}

ChunkSnapshot Engine::Snapshot(const Session& session, const Chunk& chunk) const {
  const ChunkStatus status = StatusOf(chunk);
  return {.identity = manifest_.Identity(chunk.record),
          .name = chunk.name,
          .status = status,
          // A retained session has no client, whatever its lease table still says.
          .leased = session.state == SessionState::kAttached &&
                    shm::IsHeld(tables_->ReadLease(session.id, chunk.id), status.generation),
          .pins = chunk.pins,
          .loads = manifest_.Loads(chunk.record),
          .drops = manifest_.Drops(chunk.record)};
}

std::vector<ChunkSnapshot> Engine::Chunks(SessionId id, size_t limit, ChunkPlace from) const {
  std::vector<ChunkSnapshot> snapshots;
  if (id != kNoSession && from.session < id) from = {.session = id};
  for (auto it = sessions_.lower_bound(from.session); it != sessions_.end(); ++it) {
    const Session& session = *it->second;
    if (id != kNoSession && session.id != id) break;
    if (session.chunk_count == 0) continue;
    const size_t first = session.id == from.session ? shm::Index(from.chunk) : 0;
    for (size_t i = first; i < session.chunks.size(); ++i) {
      if (snapshots.size() >= limit) return snapshots;
      if (session.chunks[i] != nullptr) snapshots.push_back(Snapshot(session, *session.chunks[i]));
    }
  }
  return snapshots;
}

std::optional<ChunkSnapshot> Engine::FindChunk(SessionId id, ChunkId chunk_id) const {
  const Session* session = Find(id);
  const Chunk* chunk = session == nullptr ? nullptr : session->Find(chunk_id);
  if (chunk == nullptr) return std::nullopt;
  return Snapshot(*session, *chunk);
}

uint64_t Engine::ChunkCount(SessionId id) const {
  if (id != kNoSession) return Find(id) == nullptr ? 0 : Find(id)->chunk_count;
  uint64_t count = 0;
  for (const auto& [session_id, session] : sessions_) count += session->chunk_count;
  return count;
}

std::vector<PoolSnapshot> Engine::Pools(PoolPlace from, size_t limit) const {
  std::vector<PoolSnapshot> snapshots;
  for (auto it = sessions_.lower_bound(from.session); it != sessions_.end(); ++it) {
    const auto& [id, session] = *it;
    const PoolId first = id == from.session ? from.pool : kNoPool;
    if (session->arena.has_value() && first == kNoPool && snapshots.size() < limit) {
      const Account account = session->device_account();
      snapshots.push_back({.session = id,
                           .tenant = session->spec.tenant,
                           .account = account,
                           .bytes = session->arena_bytes(),
                           .in_use_bytes = ledger_.InUseBytes(account, id)});
    }
    for (auto pool = session->pools.lower_bound(first); pool != session->pools.end(); ++pool) {
      if (snapshots.size() >= limit) return snapshots;
      snapshots.push_back({.pool = pool->first,
                           .session = id,
                           .tenant = session->spec.tenant,
                           .account = kHostAccount,
                           .bytes = pool->second.bytes,
                           .in_use_bytes = pool->second.in_use_bytes});
    }
    if (snapshots.size() >= limit) break;
  }
  return snapshots;
}

}  // namespace geminid::core
