#include "daemon/service/sessions/session_ends.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "daemon/os/log.h"

namespace geminid::service {

Closed SessionEnds::Close(const SessionPtr& session, core::CloseReason reason) {
  const Locked locked = table_->Lock();
  if (session->ended()) return {};
  Closed closed = {.now = true, .garbage = {}};
  Close(locked, session, reason, &closed.garbage);
  return closed;
}

void SessionEnds::Close(const Locked& locked, const SessionPtr& session, core::CloseReason reason,
                        Garbage* garbage) {
  Tell(session, shm::Phase::kGone, SleepingClient::End::kAll, waker_);
  const absl::Status status =
      End(locked, session, reason, reason != core::CloseReason::kDetached, garbage);
  if (status.ok()) return;
  os::Log(os::LogLevel::kError, "closing a session failed",
          {{"session", absl::StrCat(shm::Value(session->id()))},
           {"error", std::string(status.message())}});
}

bool SessionEnds::EndForGood(const Locked& locked, const SessionPtr& session, Garbage* garbage) {
  return End(locked, session, core::CloseReason::kDetached, /*died=*/true, garbage).ok();
}

absl::Status SessionEnds::End(const Locked& locked, const SessionPtr& session,
                              core::CloseReason reason, bool died, Garbage* garbage) {
  session->SetEnded();
  statistics_->Note(locked, *session);
  GEMINID_ASSIGN_OR_RETURN(const core::Releases releases,
                           locked.engine().BeginClose(session->id(), reason, Now()));
  reclaimer_->Collect(locked, releases, died, garbage);
  return absl::OkStatus();
}

}  // namespace geminid::service
