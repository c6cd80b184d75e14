// Collects the facts about a chunk for explanation.h.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/core/engine/engine.h"
#include "daemon/core/engine/engine_state.h"
#include "daemon/core/engine/explanation.h"

namespace geminid::core {

EvictionPlace Engine::PlaceInEvictionOrder(const Session& session, const Chunk& chunk) const {
  // Places may be out of date, so the order is computed from the true next uses.
  const auto turn = [&](const Chunk& of) {
    return std::pair(~session.Until(NextUse(session, of)), of.touched);
  };
  EvictionPlace place;
  place.of = 0;
  place.is_complete = session.eviction_order.size() <= kMostLookedAt;
  place.largest_hole_bytes = session.arena->largest_hole_bytes();
  session.eviction_order.Walk(session.plan_moment(), kMostLookedAt,
                              [&](const EvictionOrder::Entry& eviction_entry) {
                                const Chunk& other = *session.Find(eviction_entry.chunk);
                                if (IsLeased(session, other)) return EvictionOrder::WalkStep::kOn;
                                place.of += 1;
                                if (turn(other) < turn(chunk)) {
                                  place.number += 1;
                                  place.before_bytes += session.arena->RoundUp(other.bytes);
                                }
                                return EvictionOrder::WalkStep::kOn;
                              });
  return place;
}

absl::StatusOr<std::vector<std::string>> Engine::Explain(SessionId id, ChunkId chunk_id) const {
  const Session* session = Find(id);
  if (session == nullptr) {
    return absl::NotFoundError(absl::StrCat("there is no session ", shm::Value(id)));
  }
  const Chunk* chunk = session->Find(chunk_id);
  if (chunk == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("session ", shm::Value(id), " has no chunk ", shm::Index(chunk_id)));
  }
  ChunkFacts facts;
  facts.identity = {.session = id,
                    .chunk = chunk_id,
                    .kind = chunk->kind,
                    .bytes = chunk->bytes,
                    .pool = chunk->pool,
                    .home_offset = chunk->home_offset};
  facts.status = StatusOf(*chunk);
  facts.name = chunk->name;
  facts.job = session->spec.job;
  facts.rank = session->spec.rank;
  facts.device = session->device_account();
  facts.ticket = manifest_.Transfer(chunk->record);
  const uint32_t transfers = chunk->pins + chunk->home_uses;
  facts.other_transfers = transfers - std::min(transfers, chunk->tickets_into);
  facts.client_died = session->state == SessionState::kKept;
  facts.plan_moments = session->plan_moments;
  if (session->plan_moments > 0) facts.moment = session->moment % session->plan_moments;
  facts.home_is_torn = chunk->home_writes > 0 || chunk->home_lost;
  const uint32_t next_use = session->Until(NextUse(*session, *chunk));
  if (next_use != EvictionOrder::kNever) facts.next_use = next_use;
  facts.why_not_evictable = WhyNotEvictable(*session, *chunk);
  if (facts.why_not_evictable.empty()) facts.place = PlaceInEvictionOrder(*session, *chunk);
  return core::Explain(facts);
}

}  // namespace geminid::core
