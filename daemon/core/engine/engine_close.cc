// The end of a session's client: its memory is freed, or retained for the next client.
//
// A session may have 65,536 chunks, so both are done in slices, between which other sessions are
// served. The books record at the beginning which of the two it is. An engine that takes over in
// between finds a retained session, or one whose time is over, and closes its chunks anew.
#include <algorithm>
#include <utility>

#include "daemon/core/engine/engine.h"
#include "daemon/core/engine/engine_state.h"

namespace geminid::core {

absl::StatusOr<Releases> Engine::BeginClose(SessionId id, CloseReason reason, Time now) {
  Session* session = Find(id);
  const bool may_close =
      session != nullptr && (session->state == SessionState::kAttached || session->is_ending() ||
                             reason == CloseReason::kDetached);
  if (!may_close) return NoSuchSession(id);
  Releases releases;
  if (session->is_ending() && session->closed_chunks.has_value()) {
    releases.closing.push_back(id);
    return releases;
  }
  scheduler_.RemoveSession(id, now);
  VoidPromises(session, &releases);
  session->held = session->held || jobs_.IsHeld(id);
  session->leaves_device = jobs_.IsToYield(id);
  jobs_.Leave(id, now);
  grants_are_due_ = true;
  const bool keep = reason != CloseReason::kDetached && !session->is_ending() &&
                    session->spec.death_policy == shm::DeathPolicy::kKeep &&
                    session->chunk_count > 0;
  if (keep) {
    BeginKeep(session, now + options_.keep_time);
    releases.closing.push_back(id);
    ++counters_.sessions_kept;
  } else {
    BeginEnd(session, &releases);
  }
  ShareLinks(session->spec.tenant);
  return releases;
}

bool Engine::ContinueClose(SessionId id, size_t most, Releases* releases) {
  Session* session = Find(id);
  if (session == nullptr || !session->closed_chunks.has_value()) return true;
  size_t& next = *session->closed_chunks;
  const size_t end = next + std::min(most, session->chunks.size() - next);
  for (; next < end; ++next) {
    Chunk* chunk = session->chunks[next].get();
    if (chunk == nullptr) continue;
    if (session->is_ending()) {
      FreeChunk(session, chunk->id, releases);
    } else {
      KeepChunk(session, chunk);
    }
  }
  if (next < session->chunks.size()) return false;
  if (session->is_ending()) {
    FinishEnd(session, releases);
  } else {
    FinishKeep(session, releases);
  }
  return true;
}

void Engine::CloseAll(Releases* releases) {
  for (const SessionId id : std::exchange(releases->closing, {})) {
    ContinueClose(id, shm::kMaxChunks, releases);
  }
}

absl::StatusOr<Releases> Engine::CloseSession(SessionId id, CloseReason reason, Time now) {
  absl::StatusOr<Releases> releases = BeginClose(id, reason, now);
  if (releases.ok()) CloseAll(&*releases);
  return releases;
}

// --- its memory ends -----------------------------------------------------------------------------

void Engine::BeginEnd(Session* session, Releases* releases) {
  kept_.erase({session->keep_until, session->id});
  session->state = SessionState::kKept;
  session->keep_until = kEndedTime;
  session->closed_chunks = 0;
  releases->closing.push_back(session->id);
  if (!session->books.has_value()) return;
  session->books->SetKeptUntil(kEndedTime);
  // First the transfers: the books never name one without its chunks, wherever the daemon dies.
  session->books->RemoveAllTransfers();
}

void Engine::FinishEnd(Session* session, Releases* releases) {
  if (session->arena.has_value()) {
    ReleaseMemory(*session, session->device_account(), session->arena_bytes(), releases);
    releases->arenas.push_back(session->id);
  }
  releases->sessions.push_back(session->id);
  limits_.GiveSession(session->spec.tenant);
  sessions_.erase(session->id);
}

// --- its memory is retained ----------------------------------------------------------------------

// The client is dead: nobody computes, copies or holds a lease. A copy that was being written is
// torn: a device copy that was being filled, was leased or in COMPUTE, and a home that a ticket was
// copying to. A gathered weight may be half a gradient. Torn copies are dropped; whole ones stay.
void Engine::KeepChunk(Session* session, Chunk* chunk) {
  ChunkStatus status = StatusOf(*chunk);
  const bool resident = status.residency == shm::Residency::kResident;
  // In a run, the commit record tells the next client which copies are whole.
  const bool noted = !session->spec.run.empty();
  const bool changing =
      !noted && (status.state == ChunkState::kCompute || IsLeased(*session, *chunk));
  const bool whole = resident && !changing && chunk->kind != ChunkKind::kGatheredWeight;
  const bool home_torn = chunk->has_home() && chunk->home_writes > 0;
  chunk->pins = chunk->inbound = chunk->home_uses = chunk->tickets_into = chunk->home_writes = 0;
  chunk->publish_when_idle = chunk->drop_when_idle = false;
  chunk->written_back.Clear();
  manifest_.SetTransfer(chunk->record, kNoTicket);
  chunk->home_lost = chunk->home_lost || (!whole && (home_torn || status.dirty));
  NoteProgress(*chunk);
  manifest_.ClearWrittenBack(chunk->record);
  if (!whole && status.residency != shm::Residency::kAbsent) {
    // The state stays until the copy is gone: it tells a restarted daemon to drop the copy.
    RemoveExtent(session, chunk);
    status = StatusOf(*chunk);
  }
  if (whole && home_torn) status.dirty = true;
  if (status.state != ChunkState::kFree) status.state = ChunkState::kHold;
  SetStatus(session, chunk, status);
}

void Engine::BeginKeep(Session* session, Time until) {
  session->state = SessionState::kKept;
  session->keep_until = until;
  session->closed_chunks = 0;
  kept_.emplace(session->keep_until, session->id);
  if (session->books.has_value()) session->books->SetKeptUntil(session->keep_until);
}

// Others wait for the arena of a job that was asked for it. If nothing is left in the arena that
// the next client needs, it is given back now, as the client would have done.
void Engine::FinishKeep(Session* session, Releases* releases) {
  session->closed_chunks.reset();
  if (session->arena.has_value()) session->arena->ReserveTop(0).IgnoreError();  // cannot fail
  const bool leaves = std::exchange(session->leaves_device, false) && session->arena.has_value() &&
                      session->arena->used_bytes() == 0;
  if (leaves) {
    ReleaseMemory(*session, session->device_account(), session->arena_bytes(), releases);
    releases->arenas.push_back(session->id);
    session->arena.reset();
  }
  if (!session->books.has_value()) return;
  session->books->SetWorkspace(0);
  session->books->ClearJob();
  session->books->RemoveAllTransfers();
  if (leaves) session->books->SetArena(0);
}

}  // namespace geminid::core
