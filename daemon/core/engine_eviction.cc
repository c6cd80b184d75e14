// Places in the arena: who gets one, and who leaves to make room.
#include <algorithm>
#include <limits>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "daemon/core/engine.h"
#include "daemon/core/engine_state.h"

namespace geminid::core {
namespace {

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
// A client that takes leases as fast as they are looked at only hurts itself.
constexpr int kEvictionRounds = 4;

}  // namespace

// Moments until the plan uses the chunk next; kNever: not in the plan, or its payload is gone.
uint64_t Engine::NextUse(const Session& session, const Chunk& chunk) const {
  if (StatusOf(chunk).state == ChunkState::kFree) return kNever;
  const auto uses = session.plan_uses.find(chunk.id);
  if (session.plan_moments == 0 || uses == session.plan_uses.end() || uses->second.empty()) {
    return kNever;
  }
  const uint64_t now = session.moment % session.plan_moments;
  const auto next = std::lower_bound(uses->second.begin(), uses->second.end(), now);
  if (next != uses->second.end()) return *next - now;
  return uses->second.front() + session.plan_moments - now;
}

// Empty: the device copy may go as far as the daemon's own books show; leases are another matter.
std::string Engine::WhyNotEvictable(const Session& session, const Chunk& chunk) const {
  const ChunkStatus status = StatusOf(chunk);
  if (status.residency == shm::Residency::kFilling) return "its device copy is being filled";
  if (status.residency != shm::Residency::kResident) return "it has no device copy";
  if (chunk.pins > 0) return absl::StrCat(chunk.pins, " transfers use its device copy");
  if (status.state != ChunkState::kHold && status.state != ChunkState::kFree) {
    return absl::StrCat("it is ", shm::Name(status.state), ", and only HOLD and FREE may leave");
  }
  if (status.dirty && chunk.has_home()) return "its device copy is newer than its home";
  if (status.dirty) return "its device copy was written and is the only one";
  if (!chunk.has_home() && chunk.kind != ChunkKind::kGatheredWeight &&
      status.state != ChunkState::kFree) {
    return "its device copy is the only one";
  }
  const uint64_t lease = tables_->ReadLease(session.id, chunk.id);
  return shm::IsHeld(lease, status.generation) ? "it is leased" : "";
}

// The first to go first: farthest next use by the plan, then least recently used.
std::vector<Extent> Engine::EvictionOrder(const Session& session) const {
  struct Candidate {
    uint64_t next_use;
    uint64_t touched;
    Extent extent;
  };
  std::vector<Candidate> candidates;
  for (const Extent& extent : session.arena->Extents()) {
    const Chunk& chunk = *session.Find(extent.owner);
    if (!WhyNotEvictable(session, chunk).empty()) continue;
    candidates.push_back({NextUse(session, chunk), chunk.touched, extent});
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(b.next_use, a.touched) < std::tie(a.next_use, b.touched);
  });
  std::vector<Extent> order;
  order.reserve(candidates.size());
  for (const Candidate& candidate : candidates) order.push_back(candidate.extent);
  return order;
}

Engine::Failure Engine::PlaceExtent(Session* session, Chunk* chunk, uint64_t offset,
                                    bool may_evict) {
  if (!session->arena.has_value()) {
    return {absl::FailedPreconditionError(
                "the session has no device memory; ask for some when it attaches"),
            shm::ErrorReason::kArenaFull};
  }
  if (StatusOf(*chunk).residency != shm::Residency::kAbsent) {
    return {absl::FailedPreconditionError(absl::StrCat(
                "chunk \"", chunk->name, "\" has a device copy already; drop it first")),
            shm::ErrorReason::kAlreadyResident};
  }
  if (offset == shm::kAnyOffset) {
    const absl::StatusOr<uint64_t> placed = PlaceAnywhere(session, chunk, may_evict);
    if (!placed.ok()) return {placed.status(), shm::ErrorReason::kArenaFull};
    offset = *placed;
  } else if (Failure failure = PlaceAt(session, chunk, offset, may_evict); !failure.ok()) {
    return failure;
  }
  ledger_.Occupy(session->device_account(), session->id, chunk->kind, chunk->bytes).IgnoreError();
  ChunkStatus status = StatusOf(*chunk);
  status.residency = shm::Residency::kFilling;
  status.slot = shm::SlotOf(offset);
  SetStatus(*session, *chunk, status);
  session->Touch(chunk);
  return Failure::None();
}

Engine::Failure Engine::PlaceAt(Session* session, Chunk* chunk, uint64_t offset, bool may_evict) {
  ExtentAllocator& arena = *session->arena;
  if (offset % shm::kSlotBytes != 0) {
    return {absl::InvalidArgumentError(
                absl::StrCat("device offset ", offset, " is not a multiple of ", shm::kSlotBytes)),
            shm::ErrorReason::kMalformed};
  }
  absl::Status status = arena.AllocateAt(offset, chunk->bytes, chunk->id);
  if (absl::IsInvalidArgument(status)) {
    return {absl::OutOfRangeError(std::string(status.message())), shm::ErrorReason::kOutOfRange};
  }
  if (!status.ok() && may_evict &&
      MakeRoom(session, offset, offset + arena.RoundUp(chunk->bytes))) {
    status = arena.AllocateAt(offset, chunk->bytes, chunk->id);
  }
  if (status.ok()) return Failure::None();
  return {absl::ResourceExhaustedError(absl::StrCat("chunk \"", chunk->name, "\" at ", offset, ": ",
                                                    std::string(status.message()))),
          shm::ErrorReason::kExtentBusy};
}

absl::StatusOr<uint64_t> Engine::PlaceAnywhere(Session* session, Chunk* chunk, bool may_evict) {
  ExtentAllocator& arena = *session->arena;
  absl::StatusOr<uint64_t> placed = arena.AllocateLowest(chunk->bytes, chunk->id);
  // A further round follows only when a victim was leased at the last moment: no candidate then.
  for (int round = 0; round < kEvictionRounds && !placed.ok() && may_evict; ++round) {
    const auto victims = arena.Victims(chunk->bytes, EvictionOrder(*session));
    if (!victims.has_value()) break;
    for (const Extent& extent : *victims) {
      if (!TryEvict(session, session->Find(extent.owner))) break;
    }
    placed = arena.AllocateLowest(chunk->bytes, chunk->id);
  }
  if (placed.ok()) return placed;
  return absl::ResourceExhaustedError(absl::StrCat(
      "chunk \"", chunk->name, "\": ", std::string(placed.status().message()), "; ",
      base::FormatBytes(arena.top_bytes()), " are workspace; ",
      may_evict ? "nothing that may leave makes enough room: release or write back a chunk"
                : "drop a chunk, or allow eviction"));
}

// Empties [begin, end) of extents if all of them may leave; else none does, short of a lease taken
// in this very moment.
bool Engine::MakeRoom(Session* session, uint64_t begin, uint64_t end) {
  if (end > session->arena->size_bytes()) return false;
  const std::vector<Extent> in_the_way = session->arena->InRange(begin, end);
  for (const Extent& extent : in_the_way) {
    if (!WhyNotEvictable(*session, *session->Find(extent.owner)).empty()) return false;
  }
  for (const Extent& extent : in_the_way) {
    if (!TryEvict(session, session->Find(extent.owner))) return false;
  }
  return true;
}

// Publishes EVICT_PENDING. True: nobody holds the chunk, and nobody can any more. False: somebody
// does, and it is RESIDENT again.
bool Engine::BeginEvict(Session* session, Chunk* chunk) {
  ChunkStatus status = StatusOf(*chunk);
  status.residency = shm::Residency::kEvictPending;
  SetStatus(*session, *chunk, status);
  if (!shm::IsHeld(tables_->ReadLease(session->id, chunk->id), status.generation)) return true;
  CancelEvict(session, chunk);
  ++session->evictions_refused_by_lease;
  ++counters_.evictions_refused_by_lease;
  return false;
}

void Engine::CancelEvict(Session* session, Chunk* chunk) {
  ChunkStatus status = StatusOf(*chunk);
  status.residency = shm::Residency::kResident;
  SetStatus(*session, *chunk, status);
}

bool Engine::TryEvict(Session* session, Chunk* chunk) {
  if (!BeginEvict(session, chunk)) return false;
  RemoveExtent(session, chunk);
  ++session->evictions;
  ++counters_.evictions;
  return true;
}

// The device copy is gone. The manifest says so before its place can be given to another.
void Engine::RemoveExtent(Session* session, Chunk* chunk) {
  ChunkStatus status = StatusOf(*chunk);
  const uint64_t offset = status.device_offset();
  if (status.residency == shm::Residency::kEvictPending) {
    status.residency = shm::Residency::kEvicting;
    SetStatus(*session, *chunk, status);
  }
  if (status.residency != shm::Residency::kFilling) manifest_.CountDrop(chunk->record);
  status.residency = shm::Residency::kAbsent;
  status.generation = (status.generation + 1) & shm::kGenerationMask;
  status.slot = 0;
  status.dirty = false;
  status.valid = chunk->has_home() ? ValidLocation::kHome : ValidLocation::kNowhere;
  SetStatus(*session, *chunk, status);
  chunk->publish_when_idle = false;
  chunk->drop_when_idle = false;
  chunk->written_back.Clear();
  session->arena->Free(offset).IgnoreError();
  ledger_.Vacate(session->device_account(), session->id, chunk->kind, chunk->bytes).IgnoreError();
}

}  // namespace geminid::core
