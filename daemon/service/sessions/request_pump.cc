#include "daemon/service/sessions/request_pump.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/os/log.h"

namespace geminid::service {
namespace {

// Bounds a turn, so that one session cannot keep the others waiting.
constexpr int kRequestsPerPump = 64;
constexpr core::Duration kLongestPump = core::Duration::Nanoseconds(500'000);
// How soon to look again whether a client has read its ring; more rarely the longer it takes.
constexpr core::Duration kShortestFlushPause = core::Duration::Milliseconds(1);
constexpr core::Duration kLongestFlushPause = core::Duration::Seconds(1);

void AddIfAsleep(ClientSession* session, std::vector<SessionPtr>* to_wake) {
  if (session->IsAsleep()) to_wake->push_back(session->shared_from_this());
}

}  // namespace

void RequestPump::Push(const Locked& locked, const std::vector<core::Outgoing>& out,
                       std::vector<ClientSession*>* served) {
  for (const core::Outgoing& outgoing : out) {
    ClientSession* session = locked.Find(outgoing.session);
    if (session == nullptr || session->ended()) continue;
    if (!session->rings().PushResponse(outgoing.response)) unflushed_.insert(outgoing.session);
    if (served->empty() || served->back() != session) served->push_back(session);
    if (outgoing.error.empty()) continue;
    os::Log(os::LogLevel::kDebug, "request refused",
            {{"session", absl::StrCat(shm::Value(outgoing.session))},
             {"request", absl::StrCat(outgoing.response.request_id)},
             {"error", outgoing.error}});
  }
}

void RequestPump::Wake(const SessionsToWake& to_wake) {
  for (const SessionPtr& session : to_wake) waker_->Wake(session);
}

void RequestPump::Deliver(const Locked& locked, const std::vector<core::Outgoing>& out,
                          SessionsToWake* to_wake) {
  std::vector<ClientSession*> served;
  Push(locked, out, &served);
  for (ClientSession* session : served) AddIfAsleep(session, to_wake);
}

void RequestPump::FlushOthers(const Locked& locked, core::Time now, SessionsToWake* to_wake) {
  if (unflushed_.empty() || now < flush_at_) return;
  const size_t flushed = std::erase_if(unflushed_, [&](shm::SessionId id) {
    ClientSession* session = locked.Find(id);
    if (session == nullptr || session->ended()) return true;
    const bool done = session->rings().FlushResponses();
    AddIfAsleep(session, to_wake);
    return done;
  });
  flush_pause_ = flushed > 0 ? kShortestFlushPause
                             : std::clamp(flush_pause_ + flush_pause_, kShortestFlushPause,
                                          kLongestFlushPause);
  flush_at_ = now + flush_pause_;
}

PumpResult RequestPump::Pump(const SessionPtr& session) {
  SessionsToWake to_wake;
  PumpResult pumped = PumpResult::kEnded;
  {
    const Locked locked = table_->LockForLoop();
    pumped = PumpLocked(locked, session.get(), &to_wake);
  }
  Wake(to_wake);
  return pumped;
}

PumpResult RequestPump::PumpLocked(const Locked& locked, ClientSession* session,
                                   SessionsToWake* to_wake) {
  if (session->ended()) return PumpResult::kEnded;
  if (!session->rings().FlushResponses()) {
    AddIfAsleep(session, to_wake);
    return PumpResult::kBlocked;
  }
  std::vector<ClientSession*> served;
  const core::Time now = Now();
  bool corrupt = false;
  bool drained = false;
  for (int i = 0; i < kRequestsPerPump && !drained; ++i) {
    if (i > 0 && Now() - now > kLongestPump) break;
    shm::Request request;
    const SessionRings::PopResult popped = session->rings().PeekRequest(&request);
    drained = popped != SessionRings::PopResult::kEntry;
    corrupt = popped == SessionRings::PopResult::kCorrupt;
    if (drained) break;
    std::vector<core::Outgoing> out;
    locked.engine().HandleRequest(session->id(), request, now, &out);
    // In this order: the next daemon finds the request, its answer, or both.
    Push(locked, out, &served);
    session->rings().HasDone();
  }
  for (ClientSession* each : served) AddIfAsleep(each, to_wake);
  if (corrupt) return PumpResult::kCorrupt;
  unflushed_.erase(session->id());  // its own turns flush its responses
  if (!drained) return PumpResult::kMore;
  if (!session->rings().FlushResponses()) return PumpResult::kBlocked;
  return session->TryArm() ? PumpResult::kArmed : PumpResult::kMore;
}

void RequestPump::Tick() {
  Garbage garbage;
  SessionsToWake to_wake;
  {
    const Locked locked = table_->LockForLoop();
    const core::Time now = Now();
    FlushOthers(locked, now, &to_wake);
    const std::optional<core::Time> due = locked.engine().NextTick();
    if (due.has_value() && *due <= now) {
      std::vector<core::Outgoing> out;
      const core::Releases releases = locked.engine().BeginTick(now, &out);
      Deliver(locked, out, &to_wake);
      reclaimer_->Collect(locked, releases, /*died=*/false, &garbage);
    }
  }
  Wake(to_wake);
  reclaimer_->DestroyLater(std::move(garbage));
}

std::optional<int64_t> RequestPump::NextTick() {
  const Locked locked = table_->LockForLoop();
  std::optional<core::Time> due = locked.engine().NextTick();
  if (!unflushed_.empty()) due = std::min(due.value_or(flush_at_), flush_at_);
  if (!due.has_value()) return std::nullopt;
  return due->nanoseconds();
}

void RequestPump::ResumeAll(const std::vector<core::Outgoing>& out) {
  SessionsToWake to_wake;
  {
    const Locked locked = table_->Lock();
    Deliver(locked, out, &to_wake);
    for (const auto& [id, session] : locked.sessions()) AddIfAsleep(session.get(), &to_wake);
  }
  Wake(to_wake);
}

}  // namespace geminid::service
