// Places in the arena: which chunk gets one, and which chunks are evicted to make room.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "daemon/core/engine/engine.h"
#include "daemon/core/engine/engine_state.h"

namespace geminid::core {
namespace {

// Bounds the retries: a client that keeps taking leases meanwhile only hurts itself.
constexpr int kEvictionRounds = 4;
}  // namespace

uint32_t Engine::NextUse(const Session& session, const Chunk& chunk) const {
  if (StatusOf(chunk).state == ChunkState::kFree) return EvictionOrder::kNever;
  const auto uses = session.plan_uses.find(chunk.id);
  if (session.plan_moments == 0 || uses == session.plan_uses.end() || uses->second.empty()) {
    return EvictionOrder::kNever;
  }
  const auto next =
      std::lower_bound(uses->second.begin(), uses->second.end(), session.plan_moment());
  return next != uses->second.end() ? *next : uses->second.front();
}

// Why the device copy cannot be evicted now; empty: it can be.
std::string Engine::WhyNotEvictable(const Session& session, const Chunk& chunk) const {
  const ChunkStatus status = StatusOf(chunk);
  if (status.residency == shm::Residency::kFilling) return "its device copy is being filled";
  if (status.residency != shm::Residency::kResident) return "it has no device copy";
  if (chunk.pins > 0) return absl::StrCat(chunk.pins, " transfers use its device copy");
  if (status.state != ChunkState::kHold && status.state != ChunkState::kFree) {
    return absl::StrCat("it is ", shm::Name(status.state),
                        ", and only HOLD and FREE can be evicted");
  }
  if (status.dirty && chunk.has_home()) return "its device copy is newer than its home";
  if (status.dirty) return "its device copy was written and is the only one";
  if (!MayLeave(chunk, status)) return "its device copy is the only one";
  return IsLeased(session, chunk) ? "it is leased" : "";
}

bool Engine::MayLeave(const Chunk& chunk, const ChunkStatus& status) const {
  return status.residency == shm::Residency::kResident && chunk.pins == 0 && !status.dirty &&
         (status.state == ChunkState::kFree ||
          (status.state == ChunkState::kHold &&
           (chunk.has_home() || chunk.kind == ChunkKind::kGatheredWeight)));
}

bool Engine::IsLeased(const Session& session, const Chunk& chunk) const {
  return shm::IsHeld(tables_->ReadLease(session.id, chunk.id), StatusOf(chunk).generation);
}

// To be called after any change that decides whether, or in which order, the chunk may be evicted.
void Engine::UpdateEvictionEntry(Session* session, Chunk* chunk) {
  std::optional<EvictionOrder::Entry> place;
  if (MayLeave(*chunk, StatusOf(*chunk))) {
    place = {NextUse(*session, *chunk), chunk->touched, chunk->id};
  }
  if (place == chunk->eviction_entry) return;
  if (chunk->eviction_entry.has_value()) session->eviction_order.Erase(*chunk->eviction_entry);
  if (place.has_value()) session->eviction_order.Insert(*place);
  chunk->eviction_entry = place;
}

void Engine::Touch(Session* session, Chunk* chunk) {
  chunk->touched = ++session->touch_clock;
  UpdateEvictionEntry(session, chunk);
}

// The extents to evict so that `bytes` fit contiguously; empty: no choice of victims suffices.
std::vector<Extent> Engine::FindVictims(Session* session, uint64_t bytes) {
  ExtentAllocator::VictimSearch search(&*session->arena, bytes);
  bool found = false;
  session->eviction_order.Walk(
      session->plan_moment(), kMostLookedAt, [&](const EvictionOrder::Entry& place) {
        Chunk* chunk = session->Find(place.chunk);
        UpdateEvictionEntry(session, chunk);
        if (chunk->eviction_entry != place) return EvictionOrder::WalkStep::kMoved;
        if (IsLeased(*session, *chunk)) return EvictionOrder::WalkStep::kOn;
        found = search.Add(*session->arena->Find(StatusOf(*chunk).device_offset()));
        return found ? EvictionOrder::WalkStep::kStop : EvictionOrder::WalkStep::kOn;
      });
  return found ? search.Victims() : std::vector<Extent>{};
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
  SetStatus(session, chunk, status);
  Touch(session, chunk);
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
  // Nothing is evicted for a place inside the workspace.
  const uint64_t end = offset + arena.RoundUp(chunk->bytes);
  if (!status.ok() && may_evict && end <= arena.limit_bytes() && MakeRoom(session, offset, end)) {
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
  // A further round runs only if a victim was leased at the last moment; it is no candidate then.
  for (int round = 0; round < kEvictionRounds && !placed.ok() && may_evict; ++round) {
    std::vector<Extent> victims = FindVictims(session, chunk->bytes);
    // The walk moves chunks to their places in the new plan, which may lie behind it: walk again.
    if (victims.empty() && !session->placed_by_plan) victims = FindVictims(session, chunk->bytes);
    if (victims.empty()) break;
    if (EvictAll(session, victims)) placed = arena.AllocateLowest(chunk->bytes, chunk->id);
  }
  if (placed.ok()) return placed;
  return absl::ResourceExhaustedError(
      absl::StrCat("chunk \"", chunk->name, "\": ", std::string(placed.status().message()), "; ",
                   base::FormatBytes(arena.top_bytes()), " are workspace; ",
                   may_evict ? "evicting all chunks that can be evicted does not make enough room: "
                               "release or write back a chunk"
                             : "drop a chunk, or allow eviction"));
}

// Evicts all extents that touch [begin, end), or none if one of them may not be evicted.
bool Engine::MakeRoom(Session* session, uint64_t begin, uint64_t end) {
  if (end > session->arena->size_bytes()) return false;
  const std::vector<Extent> in_the_way = session->arena->InRange(begin, end, kMostLookedAt + 1);
  if (in_the_way.size() > kMostLookedAt) return false;
  for (const Extent& extent : in_the_way) {
    const Chunk& chunk = *session->Find(extent.owner);
    if (!MayLeave(chunk, StatusOf(chunk)) || IsLeased(*session, chunk)) return false;
  }
  return EvictAll(session, in_the_way);
}

// All or none: first none of them can be leased any more, then the first one is removed.
bool Engine::EvictAll(Session* session, const std::vector<Extent>& extents) {
  for (size_t i = 0; i < extents.size(); ++i) {
    if (BeginEvict(session, session->Find(extents[i].owner))) continue;
    ++session->evictions_refused_by_lease;
    ++counters_.evictions_refused_by_lease;
    for (size_t k = 0; k < i; ++k) CancelEvict(session, session->Find(extents[k].owner));
    return false;
  }
  for (const Extent& extent : extents) RemoveExtent(session, session->Find(extent.owner));
  session->evictions += extents.size();
  counters_.evictions += extents.size();
  return true;
}

// Publishes EVICT_PENDING. True: no client leases the chunk, and none can any more. False: a client
// does, and the chunk is RESIDENT again.
bool Engine::BeginEvict(Session* session, Chunk* chunk) {
  ChunkStatus status = StatusOf(*chunk);
  status.residency = shm::Residency::kEvictPending;
  SetStatus(session, chunk, status);
  if (!IsLeased(*session, *chunk)) return true;
  CancelEvict(session, chunk);
  return false;
}

void Engine::CancelEvict(Session* session, Chunk* chunk) {
  ChunkStatus status = StatusOf(*chunk);
  status.residency = shm::Residency::kResident;
  SetStatus(session, chunk, status);
}

// The client drops its own chunk. That is no eviction, but the chunk must not be leased either.
bool Engine::TryDrop(Session* session, Chunk* chunk) {
  if (!BeginEvict(session, chunk)) return false;
  RemoveExtent(session, chunk);
  ++counters_.drops;
  return true;
}

// Removes the device copy. The manifest says so before its place can be given to another chunk.
void Engine::RemoveExtent(Session* session, Chunk* chunk) {
  ChunkStatus status = StatusOf(*chunk);
  const uint64_t offset = status.device_offset();
  if (status.residency == shm::Residency::kEvictPending) {
    status.residency = shm::Residency::kEvicting;
    SetStatus(session, chunk, status);
  }
  if (status.residency != shm::Residency::kFilling) manifest_.CountDrop(chunk->record);
  status.residency = shm::Residency::kAbsent;
  status.generation = (status.generation + 1) & shm::kGenerationMask;
  status.slot = 0;
  status.dirty = false;
  SetStatus(session, chunk, status);
  if (chunk->publish_when_idle || chunk->drop_when_idle) {
    chunk->publish_when_idle = chunk->drop_when_idle = false;
    NoteProgress(*chunk);
  }
  chunk->written_back.Clear();
  manifest_.ClearWrittenBack(chunk->record);
  session->arena->Free(offset).IgnoreError();
  ledger_.Vacate(session->device_account(), session->id, chunk->kind, chunk->bytes).IgnoreError();
}

}  // namespace geminid::core
