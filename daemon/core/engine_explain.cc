// Why a chunk is where it is, in sentences.
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "daemon/core/engine.h"
#include "daemon/core/engine_state.h"

namespace geminid::core {
namespace {

using shm::Residency;

std::string WhereHome(PoolId pool, uint64_t offset, const ChunkStatus& status) {
  if (pool == kNoPool) return "It has no home: it lives on the device only.";
  const char* what = status.dirty ? ", which is stale: the device copy is newer." : ".";
  return absl::StrCat("Its home is in pool ", shm::Value(pool), " at offset ", offset, what);
}

std::string WhereDevice(const Account& device, const ChunkStatus& status) {
  const std::string where =
      absl::StrCat(" on ", Name(device), " at arena offset ", status.device_offset());
  switch (status.residency) {
    case Residency::kFilling:
      return absl::StrCat("Its device copy", where, " is being filled and not yet valid.");
    case Residency::kResident:
      return absl::StrCat("It is resident", where, ", generation ", status.generation, ".");
    default:
      return absl::StrCat("It has no copy on ", Name(device), ".");
  }
}

}  // namespace

std::string Engine::ExplainUse(const Session& session, const Chunk& chunk) const {
  if (session.plan_moments == 0) {
    return "The session has no plan; the least recently used chunk leaves first.";
  }
  const uint64_t distance = NextUse(session, chunk);
  const std::string now = absl::StrCat("now is moment ", session.moment % session.plan_moments,
                                       " of ", session.plan_moments);
  if (distance == std::numeric_limits<uint64_t>::max()) {
    return absl::StrCat("The plan does not use it again (", now, "): it leaves among the first.");
  }
  return absl::StrCat("The plan uses it next in ", distance, " moments (", now,
                      "); the chunk used farthest in the future leaves first.");
}

std::string Engine::ExplainEviction(const Session& session, const Chunk& chunk) const {
  const std::string why_not = WhyNotEvictable(session, chunk);
  if (!why_not.empty()) return absl::StrCat("It cannot be evicted: ", why_not, ".");
  const std::vector<Extent> order = EvictionOrder(session);
  const auto place = std::find_if(order.begin(), order.end(), [&chunk](const Extent& extent) {
    return extent.owner == chunk.id;
  });
  uint64_t before_bytes = 0;
  for (auto it = order.begin(); it != place; ++it) before_bytes += it->bytes;
  return absl::StrCat("It would be evicted as number ", place - order.begin() + 1, " of ",
                      order.size(), ", after ", base::FormatBytes(before_bytes),
                      " of others, by a request that allows eviction and finds no hole (the "
                      "largest has ",
                      base::FormatBytes(session.arena->largest_hole_bytes()), ").");
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
  const ChunkStatus status = StatusOf(*chunk);
  std::vector<std::string> lines;
  lines.push_back(absl::StrCat("Chunk ", shm::Index(chunk_id), " \"", chunk->name, "\" of job ",
                               session->spec.job, " rank ", session->spec.rank, ": ",
                               shm::Name(chunk->kind), ", ", base::FormatBytes(chunk->bytes),
                               ", state ", shm::Name(status.state), "."));
  lines.push_back(WhereHome(chunk->pool, chunk->home_offset, status));
  lines.push_back(WhereDevice(session->device_account(), status));
  const TicketId ticket = manifest_.Transfer(chunk->record);
  if (ticket != kNoTicket) {
    lines.push_back(absl::StrCat("Ticket ", shm::Value(ticket), " is copying into it."));
  }
  if (chunk->pins + chunk->home_uses > chunk->tickets_into) {
    lines.push_back(absl::StrCat(chunk->pins + chunk->home_uses,
                                 " transfers that touch it are queued or under way."));
  }
  if (session->state == SessionState::kKept) {
    lines.push_back("Its client has died; the memory is kept for the next one.");
  } else if (status.residency != Residency::kAbsent) {
    lines.push_back(ExplainUse(*session, *chunk));
    lines.push_back(ExplainEviction(*session, *chunk));
  }
  return lines;
}

}  // namespace geminid::core
