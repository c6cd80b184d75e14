// The part of the hub that is about jobs: their admission, their end, and what the operator asks.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/service/sessions/hub.h"

namespace geminid::service {

void SharedTables::PublishYield(shm::SessionId session, bool asked) {
  const auto found = sessions.find(session);
  if (found == sessions.end()) return;
  found->second->segments().state()->header.yield.store(asked ? 1 : 0, std::memory_order_seq_cst);
}

absl::StatusOr<core::JobStanding> Hub::Admit(const SessionPtr& session, const std::string& run,
                                             const core::RankAsk& ask, uint32_t weight) {
  std::lock_guard<std::mutex> lock(mutex_);
  return engine_->Admit(session->id(), run, ask, weight, Now());
}

absl::Status Hub::ReleaseArena(const SessionPtr& session, bool again) {
  Garbage garbage;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (again && session->arena == nullptr) return absl::OkStatus();
    absl::StatusOr<core::Releases> releases = engine_->ReleaseArena(session->id(), Now());
    if (!releases.ok()) return releases.status();
    Collect(*releases, /*died=*/false, &garbage);
  }
  Destroy(std::move(garbage));  // before the caller is told
  return absl::OkStatus();
}

void Hub::Drain(bool drained) {
  std::lock_guard<std::mutex> lock(mutex_);
  NoteDrain(drained);
  engine_->Drain(drained, Now());
}

absl::StatusOr<uint32_t> Hub::HoldJobs(const std::string& tenant, const std::string& job,
                                       bool hold) {
  std::lock_guard<std::mutex> lock(mutex_);
  uint32_t held = 0;
  for (const core::JobSnapshot& each : engine_->jobs().Jobs()) {
    if (each.name.tenant != tenant || each.name.job != job) continue;
    if (absl::Status status = engine_->HoldJob(each.id, hold, Now()); !status.ok()) return status;
    ++held;
  }
  const auto is_it = [&](const auto& session) {
    return session.second->spec().tenant == tenant && session.second->spec().job == job;
  };
  if (held > 0) return held;
  if (std::ranges::any_of(tables_.sessions, is_it)) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job,
                     " did not ask for admission, and gives nothing back when it is "
                     "asked to; end it instead"));
  }
  return absl::NotFoundError(absl::StrCat("there is no job ", job, " of ", tenant));
}

absl::StatusOr<Hub::EndedJob> Hub::EndJob(const std::string& tenant, const std::string& job,
                                          bool now) {
  EndedJob ended;
  std::lock_guard<std::mutex> lock(mutex_);
  for (const core::SessionSnapshot& each : engine_->Sessions()) {
    if (each.spec.tenant != tenant || each.spec.job != job) continue;
    const SessionPtr session = tables_.sessions.at(each.id);
    ended.sessions.push_back(each.id);
    ended.bytes += each.host_bytes + each.arena_bytes;
    if (!session->ended) {
      // The client reads the end of its connection; here that is seen only when it goes.
      Tell(session, shm::Phase::kEnded, now ? Sleeper::End::kAll : Sleeper::End::kWrites);
      if (!now) continue;
      session->ended = true;
    }
    Count(*session);  // the engine forgets what it has copied
    absl::StatusOr<core::Releases> releases =
        engine_->CloseSession(each.id, core::CloseReason::kDetached, Now());
    if (!releases.ok()) continue;
    ended.closed.push_back(each.id);
    Collect(*releases, /*died=*/true, &ended.garbage);
  }
  if (ended.sessions.empty()) {
    return absl::NotFoundError(absl::StrCat("there is no job ", job, " of ", tenant));
  }
  return ended;
}

}  // namespace geminid::service
