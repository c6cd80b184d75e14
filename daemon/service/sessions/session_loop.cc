#include "daemon/service/sessions/session_loop.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/os/event.h"

namespace geminid::service {
namespace {

constexpr int64_t kShortestPauseNanoseconds = 1'000'000;
constexpr int64_t kLongestPauseNanoseconds = 1'000'000'000;

}  // namespace

SessionLoop::~SessionLoop() {
  while (!watched_.empty()) Remove(watched_.begin()->first);
}

void SessionLoop::Add(const SessionPtr& session) {
  if (Watch(session).ok()) return;
  End(session, core::CloseReason::kDied, "its descriptors cannot be watched");
}

absl::Status SessionLoop::Watch(const SessionPtr& session) {
  Remove(session->id());  // a previous client whose end nobody has noticed yet
  Watched& watched = watched_[session->id()];
  watched.session = session;
  absl::Status status;
  const auto watch = [&](size_t slot, int fd, os::EventLoop::Callback callback,
                         uint32_t events = EPOLLIN) {
    absl::StatusOr<os::EventLoop::WatchId> id = loop_->Watch(fd, events, std::move(callback));
    if (id.ok()) watched.watches[slot] = *id;
    status.Update(id.status());
  };
  watch(0, session->socket().get(), [this, session](uint32_t) { OnSocket(session); });
  watch(
      1, session->daemon_event().get(),
      [this, session](uint32_t) {
        session->Disarm();
        busy_.insert(session->id());
      },
      EPOLLIN | EPOLLET);
  if (session->pidfd().valid()) {
    watch(2, session->pidfd().get(), [this, session](uint32_t) {
      End(session, core::CloseReason::kDied, "its process ended");
    });
  }
  if (status.ok()) {
    busy_.insert(session->id());
  } else {
    Remove(session->id());
  }
  return status;
}

void SessionLoop::Remove(shm::SessionId id) {
  const auto found = watched_.find(id);
  if (found == watched_.end()) return;
  for (const os::EventLoop::WatchId watch : found->second.watches) loop_->Unwatch(watch);
  Garbage garbage;
  garbage.sessions.push_back(std::move(found->second.session));
  hub_->DestroyLater(std::move(garbage));
  watched_.erase(found);
  busy_.erase(id);
  blocked_.erase(id);
}

void SessionLoop::OnSocket(const SessionPtr& session) {
  std::byte unexpected;
  const os::Received received = os::ReceiveMessage(session->socket(), std::span(&unexpected, 1));
  switch (received.result) {
    case os::Received::Result::kNothing:
      return;
    case os::Received::Result::kEnd:
      return End(session, core::CloseReason::kDied, "its attach connection ended");
    case os::Received::Result::kMessage:
      return End(session, core::CloseReason::kProtocolError,
                 "it sent a message that the protocol does not have");
  }
}

void SessionLoop::End(const SessionPtr& session, core::CloseReason reason, const char* why) {
  // A callback of this session may be running: its copy of the pointer keeps it alive.
  const SessionPtr keep = session;  // NOLINT(performance-unnecessary-copy-initialization)
  SessionHub::Closed closed = hub_->Close(keep, reason);
  hub_->DestroyLater(std::move(closed.garbage));
  Remove(keep->id());
  if (!closed.now) return;  // it detached, and has been logged
  log_->Write(keep->spec().tenant, os::LogLevel::kInfo, "session ended",
              {{"session", absl::StrCat(shm::Value(keep->id()))},
               {"job", keep->spec().job},
               {"rank", absl::StrCat(keep->spec().rank)},
               {"why", why}});
}

void SessionLoop::PumpAll() {
  const int64_t now = os::MonotonicNanoseconds();
  std::set<shm::SessionId> round = std::exchange(busy_, {});
  for (const auto& [id, blocked] : blocked_) {
    if (blocked.due <= now) round.insert(id);
  }
  for (const shm::SessionId id : round) {
    const auto found = watched_.find(id);
    if (found != watched_.end()) Pump(SessionPtr(found->second.session), now);
  }
}

void SessionLoop::Pump(const SessionPtr& session, int64_t now) {
  const SessionHub::PumpResult pumped = hub_->Pump(session);
  if (pumped == SessionHub::PumpResult::kBlocked) {
    BlockedClient& blocked = blocked_[session->id()];
    blocked.pause =
        std::clamp(2 * blocked.pause, kShortestPauseNanoseconds, kLongestPauseNanoseconds);
    blocked.due = now + blocked.pause;
    return;
  }
  blocked_.erase(session->id());
  if (pumped == SessionHub::PumpResult::kMore) busy_.insert(session->id());
  if (pumped == SessionHub::PumpResult::kCorrupt) {
    End(session, core::CloseReason::kProtocolError, "its request ring contradicts itself");
  }
}

std::optional<int64_t> SessionLoop::NextDeadline() const {
  std::optional<int64_t> next;
  for (const auto& [id, blocked] : blocked_) {
    next = std::min(next.value_or(blocked.due), blocked.due);
  }
  return next;
}

}  // namespace geminid::service
