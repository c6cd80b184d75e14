#include "daemon/core/engine/explanation.h"

#include "absl/strings/str_cat.h"
#include "base/bytes.h"

namespace geminid::core {
namespace {

using shm::Residency;

std::string Counted(uint64_t count, const char* thing) {
  return absl::StrCat(count, " ", thing, count == 1 ? "" : "s");
}

std::string Where(const ChunkFacts& facts) {
  const ChunkIdentity& identity = facts.identity;
  const ChunkStatus& status = facts.status;
  const std::string device = Name(facts.device);
  if (!identity.has_home() && status.residency == Residency::kAbsent) {
    const char* const whence = identity.kind == shm::ChunkKind::kGatheredWeight
                                   ? "its contents are gathered from the ranks' shards, which are "
                                     "other chunks, when an operator uses it."
                                   : "it gets a place there when something is written to it.";
    return absl::StrCat("It has no home in host memory, and no copy on ", device, " now: ", whence);
  }
  const bool stale = status.dirty && status.residency == Residency::kResident;
  const char* what = stale                ? ", which is stale: the device copy is newer."
                     : facts.home_is_torn ? ", which is being written, or was when its client died."
                                          : ".";
  const std::string home = identity.has_home()
                               ? absl::StrCat("It is on host: its home is in pool ", shm::Value(identity.pool),
                                              " at offset ", identity.home_offset, what)
                               : "It has no home in host memory: it lives on the device only.";
  const std::string at = absl::StrCat(" on ", device, " at arena offset ", status.device_offset());
  switch (status.residency) {
    case Residency::kNone:
    case Residency::kAbsent:
      return absl::StrCat(home, " It has no copy on ", device, ".");
    case Residency::kFilling:
      return absl::StrCat(home, " Its device copy", at, " is being filled and not yet valid.");
    case Residency::kEvictPending:
    case Residency::kEvicting:
      return absl::StrCat(home, " Its device copy", at, " is being evicted.");
    case Residency::kResident:
      break;
  }
  return absl::StrCat(home, " It is resident", at, ", generation ", status.generation, ".");
}

// When it is used next, and, if it may leave, what follows from that.
std::string NextUse(const ChunkFacts& facts, bool may_leave) {
  const bool empty = facts.status.state == shm::ChunkState::kFree;
  if (empty && !may_leave) return "It holds no payload yet.";
  if (empty && facts.plan_moments > 0) return "It holds no payload; such chunks are evicted first.";
  if (facts.plan_moments == 0) {
    return absl::StrCat(empty ? "It holds no payload, and the session" : "The session",
                        " has no plan",
                        may_leave ? "; the least recently used chunk is evicted first." : ".");
  }
  const std::string now =
      absl::StrCat(" (now is moment ", facts.moment, " of ", facts.plan_moments, ")");
  if (!facts.next_use.has_value()) {
    return absl::StrCat("The plan does not use it", now,
                        may_leave ? "; such chunks are evicted first." : ".");
  }
  const std::string when =
      *facts.next_use == 0 ? "now" : absl::StrCat("next in ", Counted(*facts.next_use, "moment"));
  return absl::StrCat(
      "The plan uses it ", when, now,
      may_leave ? "; the chunk used farthest in the future is evicted first." : ".");
}

std::string Eviction(const ChunkFacts& facts) {
  if (!facts.why_not_evictable.empty()) {
    return absl::StrCat("It cannot be evicted now: ", facts.why_not_evictable, ".");
  }
  const EvictionPlace& place = facts.place;
  const char* least = place.is_complete ? "" : "at least ";
  return absl::StrCat(
      "It would be evicted as number ", least, place.number, " of ", least, place.of, ", after ",
      base::FormatBytes(place.before_bytes),
      " of others, by a request that allows eviction and finds no hole (the largest has ",
      base::FormatBytes(place.largest_hole_bytes), ").");
}

}  // namespace

std::vector<std::string> Explain(const ChunkFacts& facts) {
  std::vector<std::string> lines;
  lines.push_back(absl::StrCat(
      "Chunk ", shm::Index(facts.identity.chunk), " \"", facts.name, "\" of job ", facts.job,
      " rank ", facts.rank, ": ", shm::Name(facts.identity.kind), ", ",
      base::FormatBytes(facts.identity.bytes), ", state ", shm::Name(facts.status.state), "."));
  lines.push_back(Where(facts));
  if (facts.ticket != kNoTicket) {
    lines.push_back(absl::StrCat("Ticket ", shm::Value(facts.ticket), " is copying into it."));
  }
  if (facts.other_transfers > 0) {
    const bool one = facts.other_transfers == 1;
    lines.push_back(absl::StrCat(
        Counted(facts.other_transfers, facts.ticket == kNoTicket ? "transfer" : "further transfer"),
        one ? " that touches it is" : " that touch it are", " queued or in progress."));
  }
  if (facts.client_died) {
    lines.push_back("Its client has died; the memory is retained for the next client.");
  } else if (facts.status.residency == Residency::kFilling ||
             facts.status.residency == Residency::kResident) {
    lines.push_back(NextUse(facts, facts.why_not_evictable.empty()));
    lines.push_back(Eviction(facts));
  } else if (facts.status.residency == Residency::kAbsent && facts.plan_moments > 0) {
    lines.push_back(NextUse(facts, /*may_leave=*/false));
  }
  return lines;
}

}  // namespace geminid::core
