// The next client of a session whose client died: it takes over the session, and claims allocations
// of the previous client.
#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "daemon/core/engine/engine.h"
#include "daemon/core/engine/engine_state.h"

namespace geminid::core {
namespace {

uint64_t SuccessorOf(uint64_t allocation) { return allocation >> shm::kAllocationBits; }

}  // namespace

std::optional<SessionId> Engine::FindKept(const SessionSpec& spec) const {
  for (auto it = sessions_.rbegin(); it != sessions_.rend(); ++it) {
    const Session& session = *it->second;
    if (session.state != SessionState::kKept || session.is_ending()) continue;
    if (IsSameRank(session.spec, spec)) return session.id;
  }
  return std::nullopt;
}

absl::Status Engine::ReopenSession(SessionId id, const SessionSpec& spec, Time now) {
  Session* session = Find(id);
  if (session == nullptr || session->state != SessionState::kKept || session->is_ending()) {
    return absl::NotFoundError(
        absl::StrCat("no session ", shm::Value(id), " is kept; attach without resuming"));
  }
  const SessionSpec& old = session->spec;
  if (!IsSameRank(spec, old)) {
    return absl::PermissionDeniedError(absl::StrCat("session ", shm::Value(id), " is kept for job ",
                                                    old.job, " rank ", old.rank, " of ", old.tenant,
                                                    "; only that may resume it"));
  }
  if (spec.device != shm::kAnyDevice && spec.device != session->device) {
    return absl::FailedPreconditionError(absl::StrCat(
        "session ", shm::Value(id), " is kept on device ", shm::Value(session->device),
        ", not on device ", shm::Value(spec.device), "; resume it without asking for a device"));
  }
  Releases none;  // retained memory is not released
  ContinueClose(id, shm::kMaxChunks, &none);
  session->spec = spec;
  session->state = SessionState::kAttached;
  kept_.erase({session->keep_until, id});
  session->opened_at = now;
  session->asked_for_admission = session->in_doubt = session->again = false;
  session->moment = 0;
  session->plan_moments = 0;
  session->plan_uses.clear();
  scheduler_.AddSession(id, session->device, 1, session->spec.tenant);
  ShareLinks(spec.tenant);
  ++counters_.sessions_resumed;
  counters_.successor_waits.Add(options_.keep_time - (session->keep_until - now));
  for (const auto& chunk : session->chunks) {
    if (chunk == nullptr) continue;
    if (chunk->eviction_entry.has_value()) UpdateEvictionEntry(session, chunk.get());
    tables_->PublishState(id, chunk->id, StatusOf(*chunk).Published());
  }
  return absl::OkStatus();
}

uint32_t Engine::SuccessorNumber(SessionId id) const {
  const Session* session = Find(id);
  if (session == nullptr) return 0;
  uint64_t last = 0;
  for (const auto& chunk : session->chunks) {
    if (chunk != nullptr) last = std::max(last, manifest_.AllocationOf(chunk->record));
  }
  return static_cast<uint32_t>(SuccessorOf(last) + 1);
}

bool Engine::IsLike(const Chunk& chunk, const ChunkSpec& spec) {
  return chunk.bytes == spec.bytes && chunk.kind == spec.kind &&
         chunk.has_home() == spec.has_home && chunk.name == spec.name;
}

bool Engine::Matches(const std::vector<Chunk*>& chunks, const std::vector<ChunkSpec>& specs) const {
  PoolId pool = kNoPool;
  const auto is_it = [&pool](const Chunk* chunk, const ChunkSpec& spec) {
    if (chunk->has_home() && pool == kNoPool) pool = chunk->pool;
    return IsLike(*chunk, spec) && (!spec.has_home || chunk->pool == pool);
  };
  return std::ranges::equal(chunks, specs, is_it);
}

Allocation Engine::TakeAllocation(const Session& session, const std::vector<Chunk*>& chunks,
                                  uint64_t number) {
  Allocation allocation;
  for (const Chunk* chunk : chunks) {
    manifest_.SetAllocation(chunk->record, number);
    allocation.chunks.push_back(chunk->id);
    allocation.home_offsets.push_back(chunk->has_home() ? chunk->home_offset : 0);
    if (chunk->has_home()) allocation.pool = chunk->pool;
  }
  const auto pool = session.pools.find(allocation.pool);
  if (pool != session.pools.end()) allocation.pool_bytes = pool->second.bytes;
  return allocation;
}

// For people: how the older allocation that begins most like `specs` differs from them.
std::string Engine::MostAlike(const Session& session, const std::vector<ChunkSpec>& specs,
                              uint64_t number) const {
  std::map<uint64_t, std::vector<const Chunk*>> older;
  for (const auto& chunk : session.chunks) {
    if (chunk == nullptr) continue;
    const uint64_t allocation = manifest_.AllocationOf(chunk->record);
    if (SuccessorOf(allocation) < SuccessorOf(number)) older[allocation].push_back(chunk.get());
  }
  size_t most = 0;
  std::string words;
  for (const auto& [allocation, chunks] : older) {
    const size_t common = std::min(chunks.size(), specs.size());
    size_t alike = 0;
    while (alike < common && IsLike(*chunks[alike], specs[alike])) ++alike;
    if (alike < most || (alike == 0 && !words.empty())) continue;
    most = alike;
    words = absl::StrCat(": the most similar allocation has ", chunks.size(), " chunks");
    if (alike == common) continue;
    const Chunk& there = *chunks[alike];
    const ChunkSpec& asked = specs[alike];
    absl::StrAppend(&words, ", and its chunk ", alike, " is \"", there.name, "\" (",
                    shm::Name(there.kind), ", ", base::FormatBytes(there.bytes), "), not \"",
                    asked.name, "\" (", shm::Name(asked.kind), ", ", base::FormatBytes(asked.bytes),
                    ")");
  }
  return words;
}

// A claim renumbers an allocation's chunks in ascending order. If the daemon died during this
// claim, the chunks with the new number count together with the others. The last chunk is
// renumbered last, so comparing it with the last spec finds the few candidate allocations.
absl::StatusOr<Allocation> Engine::Claim(SessionId id, const std::vector<ChunkSpec>& specs,
                                         uint64_t number) {
  absl::StatusOr<Session*> session = FindAttached(id);
  if (!session.ok()) return session.status();
  std::map<uint64_t, std::vector<Chunk*>> made;
  made.try_emplace(number);
  const auto walk = [&](const auto& visit) {
    for (const auto& chunk : (*session)->chunks) {
      if (chunk != nullptr) visit(chunk.get(), manifest_.AllocationOf(chunk->record));
    }
  };
  walk([&](const Chunk* chunk, uint64_t allocation) {
    const bool is_older = SuccessorOf(allocation) < SuccessorOf(number);
    if (is_older && !specs.empty() && IsLike(*chunk, specs.back())) made.try_emplace(allocation);
  });
  walk([&](Chunk* chunk, uint64_t allocation) {
    const auto found = made.find(allocation);
    if (found != made.end()) found->second.push_back(chunk);
  });
  const std::vector<Chunk*>& begun = made.at(number);
  for (const auto& [allocation, chunks] : made) {
    std::vector<Chunk*> all = chunks;
    if (allocation != number) all.insert(all.end(), begun.begin(), begun.end());
    std::ranges::sort(all, {}, &Chunk::id);
    if (Matches(all, specs)) return TakeAllocation(**session, all, number);
  }
  return absl::NotFoundError(absl::StrCat("the session has no ", specs.size(),
                                          " retained chunks like these",
                                          MostAlike(**session, specs, number)));
}

}  // namespace geminid::core
