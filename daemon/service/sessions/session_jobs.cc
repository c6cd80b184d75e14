#include "daemon/service/sessions/session_jobs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace geminid::service {

absl::StatusOr<core::JobStatus> SessionJobs::Admit(const SessionPtr& session,
                                                   const std::string& run,
                                                   const core::RankRequest& ask, uint32_t weight) {
  const Locked locked = table_->Lock();
  return locked.engine().Admit(session->id(), run, ask, weight, Now());
}

void SessionJobs::Drain(bool drained) {
  const Locked locked = table_->Lock();
  node_->NoteDrain(drained);
  locked.engine().Drain(drained, Now());
}

absl::StatusOr<uint32_t> SessionJobs::Hold(const std::string& tenant, const std::string& job,
                                           bool hold) {
  const Locked locked = table_->Lock();
  core::Engine& engine = locked.engine();
  uint32_t held = 0;
  for (const core::JobSnapshot& each : engine.jobs().Jobs()) {
    if (each.name.tenant != tenant || each.name.job != job) continue;
    if (absl::Status status = engine.HoldJob(each.id, hold, Now()); !status.ok()) return status;
    ++held;
  }
  if (!hold) held += engine.LetGoRetained(tenant, job);
  const auto is_it = [&](const auto& session) {
    return session.second->spec().tenant == tenant && session.second->spec().job == job;
  };
  if (held > 0) return held;
  if (std::ranges::any_of(locked.sessions(), is_it)) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job,
                     " did not ask for admission, and gives nothing back when it is "
                     "asked to; end it instead"));
  }
  return absl::NotFoundError(absl::StrCat("there is no job ", job, " of ", tenant));
}

absl::StatusOr<EndedJob> SessionJobs::End(const std::string& tenant, const std::string& job,
                                          const std::string& run, bool now) {
  EndedJob ended;
  const Locked locked = table_->Lock();
  for (const core::SessionSnapshot& each : locked.engine().Sessions()) {
    if (each.spec.tenant != tenant || each.spec.job != job) continue;
    if (!run.empty() && each.spec.run != run) continue;
    const SessionPtr session = locked.sessions().at(each.id);
    ended.sessions.push_back(each.id);
    if (!each.spec.run.empty()) ended.runs.insert(each.spec.run);
    ended.bytes += each.host_bytes + each.arena_bytes;
    if (!session->ended()) {
      // The client reads the end of its connection; the daemon sees one only when the client goes.
      Tell(session, shm::Phase::kEnded,
           now ? SleepingClient::End::kAll : SleepingClient::End::kWrites, waker_);
      if (!now) continue;
    }
    if (ends_->EndForGood(locked, session, &ended.garbage)) ended.closed.push_back(each.id);
  }
  if (ended.sessions.empty()) {
    return absl::NotFoundError(absl::StrCat("there is no job ", job, " of ", tenant));
  }
  return ended;
}

void SessionJobs::EndSession(shm::SessionId id) {
  const Locked locked = table_->Lock();
  const auto found = locked.sessions().find(id);
  if (found == locked.sessions().end() || found->second->ended()) return;
  Tell(found->second, shm::Phase::kEnded, SleepingClient::End::kWrites, waker_);
}

}  // namespace geminid::service
