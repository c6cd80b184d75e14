// Takes over from an engine that died at any instruction, from its manifest and its books.
//
// Each session is first rebuilt by itself and charged for its memory. Both may fail, and then only
// half-done evictions in its records have changed. Then it is entered into the state that all
// sessions share. If one of its transfers is invalid, the whole session ends.

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "daemon/core/engine/engine.h"
#include "daemon/core/engine/engine_state.h"

namespace geminid::core {
namespace {

using shm::Residency;

absl::Status Contradiction(SessionId session, const std::string& what) {
  return absl::DataLossError(absl::StrCat("session ", shm::Value(session), ": ", what));
}

// Concludes an eviction that was under way. An EVICT_PENDING chunk could still be leased, so it
// stays resident. An EVICTING one could not, so its device copy is gone.
ChunkStatus Concluded(ChunkStatus status) {
  if (status.residency == Residency::kEvictPending) status.residency = Residency::kResident;
  if (status.residency != Residency::kEvicting) return status;
  status.residency = Residency::kAbsent;
  status.generation = (status.generation + 1) & shm::kGenerationMask;
  status.slot = 0;
  status.dirty = false;
  return status;
}

bool IsInside(uint64_t offset, uint64_t bytes, uint64_t size) {
  return offset <= size && bytes <= size - offset;
}

}  // namespace

void Engine::KeepBooks(SessionId id, const SessionBooks& books) {
  Session* session = Find(id);
  if (session == nullptr) return;
  session->books = books;
  session->books->SetArena(session->arena_bytes());
  if (session->barred) session->books->SetBarred();
  for (const auto& chunk : session->chunks) {
    if (chunk != nullptr) session->books->SetName(chunk->id, chunk->name);
  }
  if (session->state != SessionState::kKept) return;
  session->books->SetKeptUntil(session->keep_until);
  session->books->SetWelcomed();  // its previous client was
}

void Engine::SetWelcomed(SessionId id) {
  Session* session = Find(id);
  if (session == nullptr || !session->books.has_value()) return;
  session->books->SetWelcomed();
  session->books->SetAttached();
}

// --- one session by itself -----------------------------------------------------------------------

absl::Status Engine::RebuildChunk(Session* session, const InheritedSession& inherited,
                                  RecordIndex record) {
  const ChunkIdentity identity = manifest_.Identity(record);
  const uint32_t number = shm::Index(identity.chunk);
  if (number >= session->chunks.size()) {
    session->chunks.resize(number + 1);
    session->generations.resize(number + 1, 0);
  }
  if (session->chunks[number] != nullptr) {
    return Contradiction(session->id, absl::StrCat("two records of chunk ", number));
  }
  auto chunk = std::make_unique<Chunk>();
  chunk->id = identity.chunk;
  chunk->name = inherited.books.NameOf(identity.chunk);
  chunk->record = record;
  chunk->kind = identity.kind;
  chunk->bytes = identity.bytes;
  chunk->pool = identity.pool;
  chunk->home_offset = identity.home_offset;
  if (chunk->has_home()) {
    const auto pool = inherited.pools.find(chunk->pool);
    if (pool == inherited.pools.end() ||
        !IsInside(chunk->home_offset, chunk->bytes, pool->second)) {
      return Contradiction(session->id,
                           absl::StrCat("the home of chunk ", number, " is not there"));
    }
    Pool& home = session->pools[chunk->pool];
    session->pool_bytes += home.bytes == 0 ? pool->second : 0;
    home.bytes = pool->second;
    home.in_use_bytes += chunk->bytes;
    home.chunks += 1;
  }
  if (chunk->is_on_disk()) session->disk_bytes += chunk->bytes;
  const ChunkProgress progress = manifest_.Progress(record);
  chunk->home_lost = progress.home_lost;
  chunk->publish_when_idle = progress.publish_when_idle;
  chunk->drop_when_idle = progress.drop_when_idle;
  chunk->dirty_epoch = manifest_.DirtyEpoch(record);
  const ByteRange written = manifest_.WrittenBack(record);
  chunk->written_back.Add(written.begin, written.end);
  const ChunkStatus status = Concluded(manifest_.Status(record));
  if (status.dirty && status.residency != Residency::kResident) {
    return Contradiction(
        session->id, absl::StrCat("chunk ", number, " was changed on the device, where it is not"));
  }
  manifest_.SetStatus(record, status);
  manifest_.SetTransfer(record, kNoTicket);
  if (status.residency != Residency::kAbsent &&
      (!session->arena.has_value() ||
       !session->arena->AllocateAt(status.device_offset(), chunk->bytes, chunk->id).ok())) {
    return Contradiction(session->id,
                         absl::StrCat("chunk ", number, " has no place on the device"));
  }
  session->generations[number] = status.generation;
  session->chunks[number] = std::move(chunk);
  session->chunk_count += 1;
  return absl::OkStatus();
}

// For a number without a chunk, the generation is in the word that was published last.
absl::Status Engine::RebuildNumbers(Session* session, const InheritedSession& inherited) {
  size_t numbers = session->chunks.size();
  for (size_t i = numbers; i < inherited.state_words.size(); ++i) {
    if (inherited.state_words[i] != 0) numbers = i + 1;
  }
  if (numbers > shm::kMaxChunks) return Contradiction(session->id, "too many chunks");
  session->chunks.resize(numbers);
  session->generations.resize(numbers, 0);
  for (uint32_t i = 0; i < numbers; ++i) {
    if (session->chunks[i] != nullptr) continue;
    if (i < inherited.state_words.size()) {
      session->generations[i] = shm::StateWord::Decode(inherited.state_words[i]).generation;
    }
    session->free_numbers.push(i);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Engine::Session>> Engine::RebuildSession(
    const InheritedSession& inherited) {
  GEMINID_ASSIGN_OR_RETURN(SessionFacts facts, inherited.books.Facts());
  auto session = std::make_unique<Session>();
  session->id = facts.id;
  session->spec = facts.spec;
  session->device = facts.device;
  session->opened_at = facts.opened_at;
  session->books = inherited.books;
  session->moment = inherited.books.moment();
  session->barred = inherited.books.barred();
  if (Find(session->id) != nullptr || shm::Value(session->device) >= options_.devices.size()) {
    return Contradiction(session->id, absl::StrCat("device ", shm::Value(session->device),
                                                   " is missing, or appears twice"));
  }
  if (const std::optional<Time> until = inherited.books.KeptUntil(); until.has_value()) {
    session->state = SessionState::kKept;
    session->keep_until = *until;
  }
  if (inherited.arena_bytes != inherited.books.arena_bytes()) {
    return Contradiction(session->id, absl::StrCat("its arena has ", inherited.arena_bytes,
                                                   " bytes, not ", inherited.books.arena_bytes()));
  }
  if (inherited.arena_bytes > 0) {
    session->arena.emplace(inherited.arena_bytes, shm::kSlotBytes);
    absl::Status reserved = session->arena->ReserveTop(inherited.books.workspace_bytes());
    if (!reserved.ok()) return Contradiction(session->id, "its workspace is not in its arena");
  }
  for (const RecordIndex record : (*unclaimed_)[session->id]) {
    GEMINID_RETURN_IF_ERROR(RebuildChunk(session.get(), inherited, record));
  }
  GEMINID_RETURN_IF_ERROR(RebuildNumbers(session.get(), inherited));
  session->in_doubt = inherited.request_in_doubt;
  return session;
}

// --- what all sessions share ---------------------------------------------------------------------

absl::Status Engine::HandOutAgain(const Session& session) {
  const std::string& tenant = session.spec.tenant;
  const auto hand_out = [&](Account account, uint64_t bytes) {
    absl::Status status = ledger_.HandOut(account, bytes);
    if (status.ok()) quota_.ChargeAgain(tenant, account, bytes);
    return status;
  };
  GEMINID_RETURN_IF_ERROR(hand_out(kHostAccount, session.pool_bytes));
  absl::Status status = hand_out(session.device_account(), session.arena_bytes());
  if (status.ok()) return hand_out(kDiskAccount, session.disk_bytes);  // cannot fail
  ledger_.TakeBack(kHostAccount, session.pool_bytes).IgnoreError();
  quota_.Return(tenant, kHostAccount, session.pool_bytes).IgnoreError();
  return status;
}

void Engine::EnterAgain(Session* session) {
  const SessionSpec& spec = session->spec;
  limits_.TakeAgain(spec.tenant, session->chunk_count);
  for (const auto& chunk : session->chunks) {
    if (chunk == nullptr) continue;
    if (chunk->has_home()) {
      ledger_.Occupy(kHostAccount, session->id, chunk->kind, chunk->bytes).IgnoreError();
    }
    if (chunk->is_on_disk()) {
      ledger_.Occupy(kDiskAccount, session->id, chunk->kind, chunk->bytes).IgnoreError();
    }
    if (StatusOf(*chunk).residency != Residency::kAbsent) {
      ledger_.Occupy(session->device_account(), session->id, chunk->kind, chunk->bytes)
          .IgnoreError();
    }
  }
  const std::optional<JobNote> job = session->books->Job();
  if (session->state == SessionState::kKept) {
    kept_.emplace(session->keep_until, session->id);
  } else {
    scheduler_.AddSession(session->id, session->device, 1, session->spec.tenant);
  }
  if (job.has_value() && session->state == SessionState::kAttached) {
    jobs_.Restore({spec.tenant, spec.job, job->run}, job->ask,
                  {.session = session->id,
                   .job = job->job,
                   .state = job->state,
                   .yielded = job->yielded,
                   .held = job->held,
                   .since = job->since});
    jobs_.Charged(session->id, kHostAccount, session->pool_bytes);
    jobs_.Charged(session->id, session->device_account(), session->arena_bytes());
    session->asked_for_admission = true;
    session->spec.weight = job->weight;
  }
}

absl::Status Engine::RebuildTransfer(Session* session, const NotedTransfer& noted, Time now) {
  const TransferRequest& request = noted.request;
  Chunk* source = session->Find(request.source);
  Chunk* destination = session->Find(request.destination);
  const bool known = source != nullptr && destination != nullptr && request.bytes > 0 &&
                     static_cast<int>(request.priority) < shm::kPriorities &&
                     static_cast<int>(request.cause) < kCauses &&
                     IsInside(request.source_offset, request.bytes, source->bytes) &&
                     IsInside(request.destination_offset, request.bytes, destination->bytes);
  const bool load = request.direction == Direction::kHostToDevice;
  if (!known || (!load && request.direction != Direction::kDeviceToHost) ||
      !(load ? source : destination)->has_home()) {
    return Contradiction(session->id, "one of its transfers is invalid");
  }
  // In a session whose client died, KeepChunk may already have removed that device copy.
  if (session->state == SessionState::kAttached &&
      StatusOf(load ? *destination : *source).residency == Residency::kAbsent) {
    return Contradiction(session->id, "one of its transfers uses a device copy that is missing");
  }
  if (noted.ticket == kNoTicket) {
    if (session->state == SessionState::kAttached) {
      scheduler_.Enqueue(session->id, request, noted.since);
    }
    Count(session, request, 1);
    return absl::OkStatus();
  }
  const Ticket ticket{.session = session->id,
                      .id = noted.ticket,
                      .completion_index = noted.completion_index,
                      .granted_at = noted.since,
                      .request = request};
  if (session->state == SessionState::kAttached && !scheduler_.Restore(ticket, now)) {
    return Contradiction(session->id, "two of its tickets have one completion word");
  }
  Count(session, request, 1);
  destination->tickets_into += 1;
  manifest_.SetTransfer(destination->record, ticket.id);
  if (!load) destination->home_writes += 1;
  return absl::OkStatus();
}

absl::Status Engine::RestoreSession(const InheritedSession& inherited, Time now) {
  if (!unclaimed_.has_value()) {
    unclaimed_.emplace();
    for (const RecordIndex record : manifest_.Used()) {
      (*unclaimed_)[manifest_.Identity(record).session].push_back(record);
    }
  }
  GEMINID_ASSIGN_OR_RETURN(std::unique_ptr<Session> rebuilt, RebuildSession(inherited));
  Session* session = rebuilt.get();
  GEMINID_RETURN_IF_ERROR(HandOutAgain(*session));
  const SessionId id = session->id;
  sessions_.emplace(id, std::move(rebuilt));
  EnterAgain(session);
  unclaimed_->erase(id);
  for (const NotedTransfer& noted : session->books->Transfers()) {
    absl::Status status = RebuildTransfer(session, noted, now);
    if (status.ok()) continue;
    // Its client could not be told of one transfer alone, so the session ends as a whole.
    scheduler_.RemoveSession(id, now);
    jobs_.Leave(id, now);
    Releases releases;
    for (const auto& chunk : session->chunks) {
      if (chunk != nullptr) chunk->pins = chunk->home_uses = 0;
    }
    BeginEnd(session, &releases);
    CloseAll(&releases);
    for (const ChargeId charge : releases.charges) GiveBack(charge);
    return status;
  }
  return absl::OkStatus();
}

// --- going on ------------------------------------------------------------------------------------

// A copy whose completion word is written is done, as if its client reported it now. The client may
// have reported it to the earlier daemon. A later report is ignored, see TransferDone.
void Engine::ResumeTransfers(Session* session, Time now, std::vector<Outgoing>* out) {
  for (const NotedTransfer& noted : session->books->Transfers()) {
    if (noted.ticket == kNoTicket) continue;
    const Ticket* ticket = scheduler_.Find(session->id, noted.ticket);
    const uint64_t word = tables_->ReadCompletion(session->id, noted.completion_index);
    if (word == shm::Value(noted.ticket)) {
      scheduler_.Complete(session->id, noted.ticket, now);
      (void)Settle(session, noted.request);
      continue;
    }
    out->push_back({.session = session->id, .response = Describe(*session, *ticket), .error = {}});
  }
}

void Engine::FinishRestore(Time now, std::vector<Outgoing>* out) {
  for (const RecordIndex record : manifest_.Used()) {
    if (Find(manifest_.Identity(record).session) == nullptr) manifest_.Remove(record);
  }
  unclaimed_.reset();
  std::set<std::string> tenants;
  for (const auto& [id, session] : sessions_) {
    tenants.insert(session->spec.tenant);
    for (const auto& chunk : session->chunks) {
      if (chunk == nullptr) continue;
      ChunkStatus status = StatusOf(*chunk);
      status.valid = ValidOf(*chunk, status);
      manifest_.SetStatus(chunk->record, status);
      tables_->PublishState(id, chunk->id, status.Published());
      UpdateEvictionEntry(session.get(), chunk.get());
    }
    if (session->state == SessionState::kKept) {
      // Also for a session that was being ended: Tick goes on with its end.
      for (const auto& chunk : session->chunks) {
        if (chunk != nullptr) KeepChunk(session.get(), chunk.get());
      }
      Releases none;  // its job was asked for nothing
      FinishKeep(session.get(), &none);
      continue;
    }
    for (const auto& chunk : session->chunks) {
      if (chunk != nullptr && (chunk->publish_when_idle || chunk->drop_when_idle)) {
        (void)SettleIdle(session.get(), chunk.get());
      }
    }
    ResumeTransfers(session.get(), now, out);
  }
  for (const std::string& tenant : tenants) ShareLinks(tenant);
  DecideJobs(now);
  GrantTransfers(now, out);
}

}  // namespace geminid::core
