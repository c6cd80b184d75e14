// Jobs: promises of memory, and sessions that must give memory back.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "daemon/core/engine/engine.h"
#include "daemon/core/engine/engine_state.h"

namespace geminid::core {

absl::StatusOr<JobStatus> Engine::Admit(SessionId id, const std::string& run, RankRequest ask,
                                        uint32_t weight, Time now) {
  GEMINID_ASSIGN_OR_RETURN(Session* const session, FindAttached(id));
  const SessionSpec& spec = session->spec;
  if (!jobs_.HasJoined(id) && !session->asked_for_admission) {
    const int32_t most = quota_.MaxPriority(spec.tenant);
    if (ask.priority > most) {
      return absl::PermissionDeniedError(
          absl::StrCat("priority ", ask.priority, ": jobs of ", spec.tenant, " may have ", most,
                       " at most; ask for less, or raise max_priority of its quota in the daemon's "
                       "configuration"));
    }
    ask.rank = spec.rank;
    ask.device = session->device;
    const DeviceDescription& device = options_.devices[shm::Value(session->device)];
    if (ask.device_bytes > shm::kMaxArenaBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("device memory of ", base::FormatBytes(ask.device_bytes),
                       "; a session can have up to ", base::FormatBytes(shm::kMaxArenaBytes)));
    }
    ask.device_bytes = base::RoundUp(ask.device_bytes, device.granularity_bytes);
    const RankMemory has = {.host_bytes = session->pool_bytes,
                            .device_bytes = session->arena_bytes()};
    absl::Status joined = jobs_.Join(id, {spec.tenant, spec.job, run}, ask, now, has);
    if (!joined.ok()) {
      if (absl::IsResourceExhausted(joined) && jobs_.IsFull(spec.tenant)) {
        limits_.CountRefusal("waiting_jobs_per_tenant", spec.tenant);
      }
      return joined;
    }
    if (std::exchange(session->held, false)) jobs_.Hold(jobs_.JobOf(id)).IgnoreError();
    session->asked_for_admission = true;
    session->spec.weight = weight;
    if (session->books.has_value()) {
      session->books->SetJob(
          {.job = jobs_.JobOf(id), .run = run, .ask = ask, .weight = weight, .since = now});
    }
    ShareLinks(spec.tenant);
  }
  DecideJobs(now);
  return jobs_.StandingOf(id);
}

void Engine::DecideJobs(Time now) {
  const JobActions actions = jobs_.Decide(now);
  for (const SessionId session : actions.admitted) tables_->PublishYield(session, false);
  for (const SessionId session : actions.asked_to_yield) tables_->PublishYield(session, true);
  NoteJobs();
}

// Writes the standing of each job into the books of its ranks.
void Engine::NoteJobs() {
  for (const JobQueue::RankState& each : jobs_.TakeChanges()) {
    Session* session = Find(each.session);
    if (session == nullptr || !session->books.has_value()) continue;
    session->books->SetStanding(each.state, each.yielded, each.held, each.since);
  }
}

// A session that never asked may take free memory, unless it attached to a drained daemon.
absl::Status Engine::CheckAdmitted(const Session& session, bool arena) const {
  if (!session.asked_for_admission) {
    if (!session.barred || !jobs_.drained()) return absl::OkStatus();
    return absl::UnavailableError(
        "the operator drains the daemon, which takes no new jobs; geminictl drain --undo ends "
        "that");
  }
  GEMINID_ASSIGN_OR_RETURN(const JobStatus standing, jobs_.StandingOf(session.id));
  const bool was_admitted =
      standing.state == JobState::kYielding || standing.state == JobState::kPreempted;
  if (standing.state == JobState::kRunning || (was_admitted && !arena)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("job ", session.spec.job, " is not admitted (",
                                                    Name(standing.state), ": ", standing.reason,
                                                    "); wait until it is"));
}

absl::StatusOr<Releases> Engine::ReleaseArena(SessionId id, Time now) {
  GEMINID_ASSIGN_OR_RETURN(Session* const session, FindAttached(id));
  if (!session->arena.has_value()) {
    return absl::FailedPreconditionError("the session has no device memory to give back");
  }
  const ExtentAllocator& arena = *session->arena;
  if (arena.used_bytes() + arena.top_bytes() > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("chunks hold ", base::FormatBytes(arena.used_bytes()), " and workspace ",
                     base::FormatBytes(arena.top_bytes()), " of the arena; drop them first"));
  }
  Releases releases;
  releases.charges.push_back(charges_.Add({.tenant = session->spec.tenant,
                                           .account = session->device_account(),
                                           .bytes = session->arena_bytes()}));
  releases.arenas.push_back(id);
  session->arena.reset();
  jobs_.Yielded(id, now);
  DecideJobs(now);
  // The last store: without an arena the session is not asked to yield, so it must have yielded.
  if (session->books.has_value()) session->books->SetArena(0);
  return releases;
}

absl::Status Engine::HoldJob(JobId job, bool hold, Time now) {
  absl::Status status = hold ? jobs_.Hold(job) : jobs_.LetGo(job);
  DecideJobs(now);
  return status;
}

uint32_t Engine::LetGoRetained(const std::string& tenant, const std::string& job) {
  std::set<std::string> runs;
  for (const auto& [id, session] : sessions_) {
    if (!session->held || session->spec.tenant != tenant || session->spec.job != job) continue;
    session->held = false;
    runs.insert(session->spec.run);
  }
  return static_cast<uint32_t>(runs.size());
}

void Engine::Drain(bool drained, Time now) {
  jobs_.SetDrained(drained);
  DecideJobs(now);
}

// Sessions that did not ask for admission are of one job if their clients name the same job. Each
// rank then counts once.
bool Engine::IsOfJob(const Session& session, const Session& other) const {
  if (const JobId job = jobs_.JobOf(session.id); job != JobId{}) {
    return jobs_.JobOf(other.id) == job;
  }
  const SessionSpec& spec = session.spec;
  const SessionSpec& its = other.spec;
  return other.id == session.id ||
         (jobs_.JobOf(other.id) == JobId{} && its.tenant == spec.tenant && its.job == spec.job &&
          its.run == spec.run && its.world_size == spec.world_size && its.rank != spec.rank);
}

absl::StatusOr<uint64_t> Engine::HostShare(SessionId id, uint64_t available_bytes) const {
  GEMINID_ASSIGN_OR_RETURN(const Session* session, FindAttached(id));
  const SessionSpec& spec = session->spec;
  uint64_t bytes = std::min(jobs_.AvailableToJob(id, spec.tenant, kHostAccount), available_bytes);
  std::set<SessionId> of_job;
  for (const auto& [other_id, other] : sessions_) {
    if (other->is_ending() || !IsOfJob(*session, *other)) continue;
    of_job.insert(other_id);
    bytes += other->pool_bytes;
  }
  // Memory that is being made for these sessions, or that they are giving back.
  for (const auto& [charge_id, charge] : charges_) {
    if (charge.account == kHostAccount && of_job.contains(charge.holder)) bytes += charge.bytes;
  }
  const int32_t ranks = spec.local_world_size > 0 ? spec.local_world_size : spec.world_size;
  return bytes / static_cast<uint64_t>(std::max(ranks, 1));
}

bool Engine::HasJob(const std::string& tenant, const std::string& job) const {
  for (const auto& [id, session] : sessions_) {
    if (session->is_ending()) continue;
    if (session->spec.tenant == tenant && session->spec.job == job) return true;
  }
  return false;
}

// A tenant's part of a link does not depend on the number of its sessions there.
void Engine::ShareLinks(const std::string& tenant) {
  std::map<DeviceIndex, double> weights;
  for (const auto& [id, session] : sessions_) {
    if (session->spec.tenant != tenant || session->state != SessionState::kAttached) continue;
    weights[session->device] += std::max<uint32_t>(session->spec.weight, 1);
  }
  for (const auto& [id, session] : sessions_) {
    if (session->spec.tenant != tenant || session->state != SessionState::kAttached) continue;
    const double part = std::max<uint32_t>(session->spec.weight, 1) / weights[session->device];
    scheduler_.SetWeight(id, quota_.Weight(tenant) * part);
  }
}

}  // namespace geminid::core
