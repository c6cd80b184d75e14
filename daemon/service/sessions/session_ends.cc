#include "daemon/service/sessions/session_ends.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/os/log.h"

namespace geminid::service {

Closed SessionEnds::Close(const SessionPtr& session, core::CloseReason reason) {
  const Locked locked = table_->Lock();
  if (session->ended) return {};
  Closed closed = {.now = true, .garbage = {}};
  Close(locked, session, reason, &closed.garbage);
  return closed;
}

void SessionEnds::Close(const Locked& locked, const SessionPtr& session, core::CloseReason reason,
                        Garbage* garbage) {
  const shm::SessionId id = session->id();
  session->ended = true;
  Tell(session, shm::Phase::kGone, Sleeper::End::kAll, waker_);
  tally_->Note(locked, *session);
  absl::StatusOr<core::Releases> releases = locked.engine().BeginClose(id, reason, Now());
  if (!releases.ok()) {
    os::Log(os::LogLevel::kError, "closing a session failed",
            {{"session", absl::StrCat(shm::Value(id))},
             {"error", std::string(releases.status().message())}});
    return;
  }
  reclaimer_->Collect(locked, *releases, reason != core::CloseReason::kDetached, garbage);
}

bool SessionEnds::EndForGood(const Locked& locked, const SessionPtr& session, Garbage* garbage) {
  session->ended = true;
  tally_->Note(locked, *session);
  const absl::StatusOr<core::Releases> releases =
      locked.engine().BeginClose(session->id(), core::CloseReason::kDetached, Now());
  if (!releases.ok()) return false;
  reclaimer_->Collect(locked, *releases, /*died=*/true, garbage);
  return true;
}

}  // namespace geminid::service
