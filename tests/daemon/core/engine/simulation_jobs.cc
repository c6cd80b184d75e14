// Sessions of the simulation that ask for admission. They wait, make their arenas or never do, are
// asked to give them back, and are held by the operator.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/pages.h"
#include "tests/daemon/core/engine/simulation.h"

namespace geminid::core {

using shm::RequestOp;

// Joins the run that lacks its second rank, or begins a new run.
void Simulation::JoinRun(SessionSpec* spec, RankRequest* ask) {
  if (half_run_.has_value()) {
    *ask = half_run_->ask;
    spec->tenant = half_run_->tenant;
    spec->rank = spec->local_rank = 1;
    half_run_.reset();
    return;
  }
  spec->rank = spec->local_rank = 0;
  *ask = {.ranks = static_cast<uint32_t>(1 + Pick(2)),
          .priority = static_cast<int32_t>(Pick(kPriorities)),
          .device_bytes = kArenaBytes,
          .host_bytes = Pick(4) * 16 * 1024,
          .preemptible = Chance(70),
          .may_wait = Chance(80)};
  ++runs_;
  if (ask->ranks == 2) half_run_ = Run{spec->tenant, *ask};
}

// The host bytes by the daemon's books: those handed out and not given back.
uint64_t Simulation::HostBytesOf(const SessionModel& session) const {
  uint64_t bytes = 0;
  for (const auto& [pool, of_pool] : session.pools) bytes += of_pool;
  for (const auto& [id, charge] : charges_) {
    const bool its = charge.session == session.id || charge.holder == session.id;
    if (its && charge.account == kHostAccount) bytes += charge.bytes;
  }
  return bytes;
}

uint64_t Simulation::HostBytesOfTenant(const std::string& tenant) const {
  uint64_t bytes = 0;
  for (const auto& [id, session] : sessions_) {
    if (session.spec.tenant != tenant) continue;
    for (const auto& [pool, of_pool] : session.pools) bytes += of_pool;
  }
  for (const auto& [id, charge] : charges_) {
    if (charge.tenant == tenant && charge.account == kHostAccount) bytes += charge.bytes;
  }
  return bytes;
}

// The engine refused an allocation. Checks that the session had no promise and its tenant no
// guarantee of this size.
void Simulation::CheckRefusal(const SessionModel& session, const std::vector<ChunkSpec>& specs) {
  uint64_t bytes = 0;
  for (const ChunkSpec& spec : specs) {
    if (spec.has_home) bytes += base::RoundUp(spec.bytes, kHomeAlignmentBytes);
  }
  bytes = base::RoundUpToPage(bytes);
  if (session.admitted && HostBytesOf(session) + bytes <= session.ask.host_bytes) {
    return Violate("host memory that was promised was refused");
  }
  for (const auto& [id, other] : sessions_) {
    // It has a part of the guarantee.
    if (other.asks && other.spec.tenant == session.spec.tenant) return;
  }
  const auto limits = std::ranges::find(options_.tenants, session.spec.tenant,
                                        [](const TenantLimits& line) { return line.tenant; });
  if (HostBytesOfTenant(session.spec.tenant) + bytes <= limits->guaranteed_host_bytes) {
    Violate("host memory that was guaranteed was refused");
  }
}

void Simulation::PublishYield(SessionId id, bool asked) {
  MayCrash();
  const auto session = sessions_.find(id);
  if (session == sessions_.end() || !session->second.asks || session->second.kept) {
    return Violate("a session was asked to yield that is no job's");
  }
  if (asked && !session->second.has_arena) Violate("a rank was asked for an arena that it has not");
  if (asked && !session->second.ask.preemptible) Violate("a job was asked that cannot yield");
  session->second.asked_to_yield = asked;
}

void Simulation::ActAsJob(SessionModel* session) {
  if (Chance(5)) return HoldSome();
  if (session->asked_to_yield && session->has_arena && Chance(90)) return Yield(session);
  AskAdmission(session);
}

// The client asks for the state of its job. It makes its arena once it may, or never does.
void Simulation::AskAdmission(SessionModel* session) {
  absl::StatusOr<JobStatus> standing;
  const auto ask = [&] {
    standing = engine_->Admit(session->id, session->run, session->ask, 1, now_);
  };
  in_call_ = session;
  while (!Survives(ask)) {
    if (!violation_.empty()) return;
  }
  in_call_ = nullptr;
  if (!standing.ok()) {
    ++counts_.jobs_undone;
    if (session->admitted) return Violate("a job that was admitted was undone");
    return Close(session, CloseReason::kDetached);
  }
  const bool admitted = standing->state >= JobState::kRunning;
  if (session->admitted && !admitted) return Violate("a job that was admitted was forgotten");
  session->admitted = admitted;
  counts_.jobs_preempted += standing->state == JobState::kPreempted ? 1 : 0;
  if (standing->state == JobState::kPreempted && session->has_arena) {
    Violate("a job that made way has an arena");
  }
  if (standing->state != JobState::kRunning || session->has_arena || Chance(10)) return;
  absl::StatusOr<uint64_t> made;
  if (!Survives([&] { made = engine_->CreateArena(session->id, kArenaBytes); })) return;
  if (!made.ok()) {
    return Violate(absl::StrCat("an arena that was promised: ", made.status().message()));
  }
  session->has_arena = true;
  ++counts_.job_arenas;
}

// The client gives up its copies on the device, and then its arena.
void Simulation::Yield(SessionModel* session) {
  const SessionId id = session->id;
  std::vector<ChunkId> all;
  for (uint32_t i = 0; i < kMaxChunks; ++i) {
    session->chunks[i].lease = 0;
    session->chunks[i].held = false;
    if (session->chunks[i].exists) all.push_back(ChunkId{i});
  }
  while (!session->tickets.empty()) {
    const auto [ticket, request_id] = *session->tickets.begin();
    session->completion[session->transfers.at(request_id).ticket.completion_index] = ticket;
    shm::Request done = Make(RequestOp::kTransferDone);
    done.argument = ticket;
    Send(session, done);
    if (!violation_.empty() || session->dead) return;
  }
  if (!session->transfers.empty()) return;  // the client waits for another turn
  Free(session, all);
  if (!violation_.empty() || session->dead) return;
  shm::Request none = Make(RequestOp::kReserveWorkspace);
  none.bytes = 0;
  Send(session, none);
  if (!violation_.empty() || session->dead) return;
  absl::StatusOr<Releases> releases;
  in_call_ = session;
  while (!Survives([&] { releases = engine_->ReleaseArena(id, now_); })) {
    if (!violation_.empty()) return;
  }
  in_call_ = nullptr;
  if (!releases.ok()) return;
  if (releases->charges.size() != 1) return Violate("an arena was given back without its charge");
  session->has_arena = false;
  charges_[releases->charges[0]] = {
      .account = DeviceAccount(session->device), .bytes = kArenaBytes, .holder = id};
  ++counts_.job_yields;
}

void Simulation::HoldSome() {
  const std::vector<JobSnapshot> jobs = engine_->jobs().Jobs();
  if (jobs.empty()) return;
  const JobId job = jobs[Pick(jobs.size())].id;
  const bool hold = Chance(40);
  (void)Survives([&] { (void)engine_->HoldJob(job, hold, now_); });
}

// The last session has no other to wait for.
void Simulation::CheckLastIsAdmitted() {
  if (sessions_.size() != 1) return;
  SessionModel& session = sessions_.begin()->second;
  if (!session.asks || session.kept || session.dead || session.ask.ranks != 1) return;
  for (const auto& [id, charge] : charges_) engine_->GiveBack(id);
  charges_.clear();
  for (const JobSnapshot& job : engine_->jobs().Jobs()) {
    (void)engine_->HoldJob(job.id, /*hold=*/false, now_);
  }
  std::vector<Outgoing> out;
  now_ = now_ + Duration::Seconds(100);
  Collect(engine_->Tick(now_, &out));
  const absl::StatusOr<JobStatus> standing =
      engine_->Admit(session.id, session.run, session.ask, 1, now_);
  const bool runs = !standing.ok() || standing->state == JobState::kRunning ||
                    (standing->state == JobState::kYielding && session.has_arena);
  if (!runs) Violate(absl::StrCat("a job that is alone waits: ", standing->reason));
}

}  // namespace geminid::core
