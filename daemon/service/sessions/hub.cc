#include "daemon/service/sessions/hub.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mapping.h"
#include "base/memfd.h"
#include "base/pages.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "daemon/os/event.h"
#include "daemon/os/log.h"
#include "daemon/os/priority.h"

namespace geminid::service {
namespace {

// So that one session cannot keep the others waiting.
constexpr int kRequestsPerPump = 64;
constexpr core::Duration kLongestPump = core::Duration::Nanoseconds(500'000);
// How soon to look again whether a client has read its ring; the longer it takes, the rarer.
constexpr core::Duration kShortestFlushPause = core::Duration::Milliseconds(1);
constexpr core::Duration kLongestFlushPause = core::Duration::Seconds(1);

absl::Status CheckFit(const gpus::Gpus* gpus, shm::DeviceIndex device) {
  return gpus == nullptr ? absl::OkStatus() : gpus->CheckFit(device);
}

}  // namespace

core::Time Now() { return core::Time::FromNanoseconds(os::MonotonicNanoseconds()); }

// --- SharedTables --------------------------------------------------------------------------------

void SharedTables::PublishState(shm::SessionId session, shm::ChunkId chunk, uint64_t word) {
  const auto found = sessions.find(session);
  if (found == sessions.end() || shm::Index(chunk) >= shm::kMaxChunks) return;
  found->second->segments().state()->state[shm::Index(chunk)].store(word,
                                                                    std::memory_order_seq_cst);
}

uint64_t SharedTables::ReadLease(shm::SessionId session, shm::ChunkId chunk) {
  const auto found = sessions.find(session);
  // A session whose client has gone holds nothing.
  if (found == sessions.end() || shm::Index(chunk) >= shm::kMaxChunks) return 0;
  return found->second->segments().client()->lease[shm::Index(chunk)].load(
      std::memory_order_seq_cst);
}

uint64_t SharedTables::ReadCompletion(shm::SessionId session, uint16_t index) {
  const auto found = sessions.find(session);
  if (found == sessions.end() || index >= shm::kCompletionWords) return 0;
  return found->second->segments().client()->completion[index].load(std::memory_order_seq_cst);
}

// --- Reaper --------------------------------------------------------------------------------------

absl::Status Reaper::Start() {
  GEMINID_ASSIGN_OR_RETURN(thread_, base::StartThread([this] { Run(); }));
  return absl::OkStatus();
}

Reaper::~Reaper() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Reaper::Destroy(Garbage garbage) {
  if (garbage.empty()) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    garbage_.push_back(std::move(garbage));
  }
  changed_.notify_one();
}

void Reaper::Run() {
  os::GiveWay();
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_ || !garbage_.empty()) {
    changed_.wait(lock, [this] { return stopping_ || !garbage_.empty(); });
    std::vector<Garbage> mine = std::exchange(garbage_, {});
    lock.unlock();
    for (Garbage& garbage : mine) destroy_(std::move(garbage));
    mine.clear();
    lock.lock();
  }
}

// --- Hub: sessions -------------------------------------------------------------------------------

absl::StatusOr<SessionPtr> Hub::KeepNew(SessionPtr session) {
  // Without the mutex: who keeps descriptors may take its time.
  const uint64_t times_kept = times_kept_.load();
  KeepSession(*session);
  if (times_kept_.load() != times_kept) KeepSession(*session);
  SessionPtr now;  // null: it ended meanwhile, for good, and perhaps before all of it was kept
  bool ended = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ended = session->ended;
    const auto found = tables_.sessions.find(session->id());
    if (found != tables_.sessions.end()) now = found->second;
  }
  if (!ended) return session;
  // Its client died, and what it had is kept, for its successor or with it already: then all but
  // the commit segment, which has one name, is of this client alone.
  const bool is_kept = now == session;
  for (const auto& [name, fd] : session->Keepsakes()) {
    const bool is_commit = name == KeepsakeName(session->id(), kKeptCommit);
    if (!is_kept && !(is_commit && now != nullptr)) store_->Remove(name).IgnoreError();
  }
  return absl::AbortedError("the session was ended while it began");
}

absl::StatusOr<core::SessionBooks> Hub::MakeBooks(const ClientSession& session) const {
  core::SessionFacts facts;
  facts.id = session.id();
  facts.spec = session.spec();
  facts.device = session.device().index;
  facts.opened_at = Now();
  facts.token = session.token();
  return core::SessionBooks::Create(session.books_memory(), facts);
}

absl::StatusOr<SessionPtr> Hub::OpenNew(const core::SessionSpec& spec, os::Peer peer,
                                        base::UniqueFd socket) {
  if (options_.gpus != nullptr) engine_->SetUnfit(options_.gpus->Unfit());
  absl::StatusOr<shm::SessionId> id = engine_->OpenSession(spec, Now());
  if (!id.ok()) return id.status();
  const core::DeviceDescription device = *engine_->DeviceOf(*id);
  if (absl::Status fit = CheckFit(options_.gpus, device.index); !fit.ok()) {
    (void)engine_->CloseSession(*id, core::CloseReason::kDetached, Now());
    return fit;
  }
  absl::StatusOr<SessionPtr> session = ClientSession::Create(
      *id, options_.daemon_epoch, spec, device, std::move(peer), std::move(socket), &in_flight_);
  if (!session.ok()) {
    (void)engine_->CloseSession(*id, core::CloseReason::kDetached, Now());
    return session.status();
  }
  absl::StatusOr<core::SessionBooks> books = MakeBooks(**session);
  if (!books.ok()) {
    (void)engine_->CloseSession(*id, core::CloseReason::kDetached, Now());
    return books.status();
  }
  engine_->KeepBooks(*id, *books);
  tables_.sessions[*id] = *session;
  return session;
}

void Hub::SetWelcomed(const SessionPtr& session) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!session->ended) engine_->SetWelcomed(session->id());  // its client may be gone already
}

Hub::Closed Hub::Close(const SessionPtr& session, core::CloseReason reason) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (session->ended) return {};
  return CloseLocked(session, reason);
}

Hub::Closed Hub::CloseLocked(const SessionPtr& session, core::CloseReason reason) {
  const shm::SessionId id = session->id();
  Closed closed;
  session->ended = true;
  closed.now = true;
  Tell(session, shm::Phase::kGone, Sleeper::End::kAll);
  Count(*session);  // the engine forgets what it has copied
  absl::StatusOr<core::Releases> releases = engine_->CloseSession(id, reason, Now());
  if (!releases.ok()) {
    os::Log(os::LogLevel::kError, "closing a session failed",
            {{"session", absl::StrCat(shm::Value(id))},
             {"error", std::string(releases.status().message())}});
    return closed;
  }
  Collect(*releases, reason != core::CloseReason::kDetached, &closed.garbage);
  return closed;
}

void Hub::Collect(const core::Releases& releases, bool died, Garbage* garbage) {
  for (const auto& [id, pool] : releases.pools) {
    const auto session = tables_.sessions.find(id);
    if (session == tables_.sessions.end()) continue;
    auto node = session->second->pools.extract(pool);
    if (!node.empty()) garbage->pools.push_back(std::move(node.mapped()));
    garbage->keepsakes.push_back(PoolName(id, pool));
  }
  for (const shm::SessionId id : releases.arenas) {
    const auto found = tables_.sessions.find(id);
    if (found == tables_.sessions.end() || found->second->arena == nullptr) continue;
    Garbage::Arena arena = {.memory = std::move(found->second->arena), .holder = {}};
    const base::UniqueFd& pidfd = found->second->pidfd();
    // Without another descriptor the memory counts as free as soon as its client has said goodbye.
    if (died && pidfd.valid()) {
      arena.holder = base::UniqueFd(::fcntl(pidfd.get(), F_DUPFD_CLOEXEC, 0));
    }
    for (uint32_t i = 0; i < arena.memory->slabs().size(); ++i) {
      garbage->keepsakes.push_back(SlabName(id, i));
    }
    garbage->arenas.push_back(std::move(arena));
  }
  for (const shm::SessionId id : releases.sessions) {
    const auto found = tables_.sessions.find(id);
    if (found == tables_.sessions.end()) continue;
    counters_.End(id);
    plan_memory_.Give(found->second->spec().tenant, found->second->plan_bytes);
    garbage->ended.push_back(found->second);
    for (const auto& [name, fd] : found->second->Keepsakes()) garbage->keepsakes.push_back(name);
    tables_.sessions.erase(found);
  }
  garbage->charges.insert(garbage->charges.end(), releases.charges.begin(), releases.charges.end());
}

// Ends the charges once all of the memory is back, whoever says that last.
class Hub::Return {
 public:
  Return(Hub* hub, std::vector<core::ChargeId> charges) : hub_(hub), charges_(std::move(charges)) {}

  void Await() { ++left_; }
  void Came(const absl::Status& status) {
    if (!status.ok()) {
      // The clients may hold it as long as they like: it stays charged.
      os::Log(os::LogLevel::kError, "memory could not be taken back",
              {{"error", std::string(status.message())}});
      whole_.store(false);
    }
    if (left_.fetch_sub(1) != 1 || !whole_.load()) return;
    const std::lock_guard<std::mutex> lock(hub_->mutex_);
    for (const core::ChargeId charge : charges_) hub_->engine_->GiveBack(charge);
  }

 private:
  Hub* const hub_;
  const std::vector<core::ChargeId> charges_;
  std::atomic<int> left_{0};
  std::atomic<bool> whole_{true};
};

void Hub::Destroy(Garbage garbage) {
  for (const SessionPtr& session : garbage.ended) session->segments().Discard();
  const auto back = std::make_shared<Return>(this, std::move(garbage.charges));
  back->Await();
  absl::Status revoked;
  for (const memory::HostPool& pool : garbage.pools) revoked.Update(pool.Revoke());
  for (Garbage::Arena& arena : garbage.arenas) {
    back->Await();
    arena.memory->Revoke(std::move(arena.holder),
                         [back](const absl::Status& status) { back->Came(status); });
  }
  if (revoked.ok()) {
    for (const std::string& name : garbage.keepsakes) store_->Remove(name).IgnoreError();
    garbage.pools.clear();
    garbage.arenas.clear();
    garbage.sessions.clear();
  }
  back->Came(revoked);
}

absl::StatusOr<SessionPtr> Hub::Authenticate(const std::string& token_hex) {
  absl::Status refused = absl::UnauthenticatedError(
      absl::StrCat("this call needs the token of an attached session in the metadata '",
                   shm::kTokenMetadataKey, "'; it is unknown, or its session has ended"));
  Token token;
  if (!FromHex(token_hex, &token)) return refused;
  std::lock_guard<std::mutex> lock(mutex_);
  SessionPtr match;
  // All of them, so that the time says nothing about which one was near.
  for (const auto& [id, session] : tables_.sessions) {
    if (ConstantTimeEqual(session->token(), token) && !session->ended) match = session;
  }
  if (match == nullptr) return refused;
  // Who has the token was told, though this may come before the note of the thread that told.
  engine_->SetWelcomed(match->id());
  return match;
}

std::vector<SessionPtr> Hub::AllSessions() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<SessionPtr> all;
  for (const auto& [id, session] : tables_.sessions) all.push_back(session);
  return all;
}

size_t Hub::AttachedSessions() {
  std::lock_guard<std::mutex> lock(mutex_);
  size_t attached = 0;
  for (const auto& [id, session] : tables_.sessions) attached += session->ended ? 0 : 1;
  return attached;
}

void Hub::SetLimits(const core::RunningLimits& limits) {
  std::lock_guard<std::mutex> lock(mutex_);
  engine_->SetLimits(limits, Now());
}

void Hub::Count(const ClientSession& session) {
  const core::SessionSpec& spec = session.spec();
  const ClientNumbers numbers = session.ReadNumbers();
  const core::TransferTotals totals = engine_->transfers().TotalsOf(session.id());
  metrics::SessionCounts counts = {.stalls = numbers.stall_nanoseconds,
                                   .queued = numbers.queued_nanoseconds,
                                   .steps = numbers.step};
  for (size_t i = 0; i < counts.transfer_bytes.size(); ++i) {
    for (const core::TransferCount& count : totals.counts[i]) {
      counts.transfer_bytes[i] += count.bytes;
    }
  }
  counters_.Update(session.id(),
                   {.tenant = spec.tenant,
                    .job = spec.job,
                    .rank = absl::StrCat(spec.rank),
                    .session = absl::StrCat(shm::Value(session.id()))},
                   counts, static_cast<uint64_t>(session.AgeNanoseconds()));
}

HubNumbers Hub::Numbers() {
  for (const auto& [id, session] : tables_.sessions) {
    if (!session->ended) Count(*session);  // what its memory says after its client has gone is old
  }
  return {.counted = counters_.Read(),
          .take_over = take_over_,
          .plan_memory_bytes = {plan_memory_.used(), plan_memory_.total()},
          .allocations = allocations_};
}

void Hub::CountAllocation(shm::Tier tier, core::Time began) {
  std::lock_guard<std::mutex> lock(mutex_);
  allocations_[tier].Add(Now() - began);
}

// --- Hub: the fast path --------------------------------------------------------------------------

// A mutex goes to whoever asks while it is free, and a thread that has just given it back asks
// first.
void Hub::LetTheLoopGoFirst() const {
  constexpr int kMostTurns = 1000;
  for (int turn = 0; turn < kMostTurns && loop_waits_.load() > 0; ++turn) std::this_thread::yield();
}

// A slice is shorter than it takes to fall asleep and to be woken.
std::unique_lock<std::mutex> Hub::LockForTheLoop() {
  constexpr int kTries = 200;
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) return lock;
  loop_waits_.fetch_add(1);
  for (int i = 0; i < kTries && !lock.owns_lock(); ++i) (void)lock.try_lock();
  if (!lock.owns_lock()) lock.lock();
  loop_waits_.fetch_sub(1);
  return lock;
}

void Hub::Push(const std::vector<core::Outgoing>& out, std::vector<ClientSession*>* served) {
  for (const core::Outgoing& outgoing : out) {
    const auto found = tables_.sessions.find(outgoing.session);
    if (found == tables_.sessions.end() || found->second->ended) continue;
    if (!found->second->PushResponse(outgoing.response)) unflushed_.insert(outgoing.session);
    if (served->empty() || served->back() != found->second.get()) {
      served->push_back(found->second.get());
    }
    if (outgoing.error.empty()) continue;
    os::Log(os::LogLevel::kDebug, "request refused",
            {{"session", absl::StrCat(shm::Value(outgoing.session))},
             {"request", absl::StrCat(outgoing.response.request_id)},
             {"error", outgoing.error}});
  }
}

void Hub::Tell(const SessionPtr& session, shm::Phase phase, Sleeper::End end) {
  session->SetPhase(phase);
  waker_.End(session, end);
}

void Hub::AddIfAsleep(ClientSession* session, ToWake* to_wake) {
  if (session->IsAsleep()) to_wake->push_back(session->shared_from_this());
}

void Hub::Wake(const ToWake& to_wake) {
  for (const SessionPtr& session : to_wake) waker_.Wake(session);
}

void Hub::Deliver(const std::vector<core::Outgoing>& out, ToWake* to_wake) {
  std::vector<ClientSession*> served;
  Push(out, &served);
  for (ClientSession* session : served) AddIfAsleep(session, to_wake);
}

void Hub::FlushOthers(core::Time now, ToWake* to_wake) {
  if (unflushed_.empty() || now < flush_at_) return;
  const size_t flushed = std::erase_if(unflushed_, [&](shm::SessionId id) {
    const auto found = tables_.sessions.find(id);
    if (found == tables_.sessions.end() || found->second->ended) return true;
    const bool done = found->second->FlushResponses();
    AddIfAsleep(found->second.get(), to_wake);
    return done;
  });
  flush_pause_ = flushed > 0 ? kShortestFlushPause
                             : std::clamp(flush_pause_ + flush_pause_, kShortestFlushPause,
                                          kLongestFlushPause);
  flush_at_ = now + flush_pause_;
}

Hub::Pumped Hub::Pump(const SessionPtr& session) {
  ToWake to_wake;
  std::unique_lock<std::mutex> lock = LockForTheLoop();
  const Pumped pumped = PumpLocked(session.get(), &to_wake);
  lock.unlock();
  Wake(to_wake);
  return pumped;
}

Hub::Pumped Hub::PumpLocked(ClientSession* session, ToWake* to_wake) {
  if (session->ended) return Pumped::kEnded;
  if (!session->FlushResponses()) {
    AddIfAsleep(session, to_wake);
    return Pumped::kBlocked;
  }
  std::vector<ClientSession*> served;
  const core::Time now = Now();
  bool corrupt = false;
  bool drained = false;
  for (int i = 0; i < kRequestsPerPump && !drained; ++i) {
    if (i > 0 && Now() - now > kLongestPump) break;
    shm::Request request;
    const ClientSession::Popped popped = session->PeekRequest(&request);
    drained = popped != ClientSession::Popped::kEntry;
    corrupt = popped == ClientSession::Popped::kCorrupt;
    if (drained) break;
    std::vector<core::Outgoing> out;
    engine_->HandleRequest(session->id(), request, now, &out);
    // In this order: a successor finds the request, its answer, or both.
    Push(out, &served);
    session->HasDone();
  }
  for (ClientSession* each : served) AddIfAsleep(each, to_wake);
  if (corrupt) return Pumped::kCorrupt;
  unflushed_.erase(session->id());  // its own requests see to it
  if (!drained) return Pumped::kMore;
  if (!session->FlushResponses()) return Pumped::kBlocked;
  return session->TryArm() ? Pumped::kArmed : Pumped::kMore;
}

void Hub::Tick() {
  Garbage garbage;
  ToWake to_wake;
  {
    const std::unique_lock<std::mutex> lock = LockForTheLoop();
    const core::Time now = Now();
    FlushOthers(now, &to_wake);
    const std::optional<core::Time> due = engine_->NextTick();
    if (due.has_value() && *due <= now) {
      std::vector<core::Outgoing> out;
      const core::Releases releases = engine_->Tick(now, &out);
      Deliver(out, &to_wake);
      Collect(releases, /*died=*/false, &garbage);
    }
  }
  Wake(to_wake);
  DestroyLater(std::move(garbage));
}

std::optional<int64_t> Hub::NextTick() {
  const std::unique_lock<std::mutex> lock = LockForTheLoop();
  std::optional<core::Time> due = engine_->NextTick();
  if (!unflushed_.empty()) due = std::min(due.value_or(flush_at_), flush_at_);
  if (!due.has_value()) return std::nullopt;
  return due->nanoseconds();
}

}  // namespace geminid::service
