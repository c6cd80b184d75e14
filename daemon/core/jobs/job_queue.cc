#include "daemon/core/jobs/job_queue.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "daemon/core/basics/less.h"

namespace geminid::core {
namespace {

// While room only shrinks, no waiting job comes to fit; asking others to yield may wait so long.
constexpr Duration kPauseWhileRoomShrinks = Duration::Seconds(1);

constexpr uint64_t kMostJobs = uint64_t{1} << 48;

}  // namespace

const char* Name(JobState state) {
  switch (state) {
    case JobState::kGathering:
      return "gathering";
    case JobState::kQueued:
      return "queued";
    case JobState::kRunning:
      return "running";
    case JobState::kYielding:
      return "yielding";
    case JobState::kPreempted:
      return "preempted";
  }
  return "unknown";
}

JobQueue::MemoryNeeds JobQueue::Job::NeedsOf(bool host, bool device, SessionId except) const {
  MemoryNeeds needs;
  for (const auto& [number, rank] : ranks) {
    if (rank.session == except) continue;
    if (host) needs[kHostAccount] += Less(rank.ask.host_bytes, rank.host_charged);
    if (device) {
      needs[DeviceAccount(rank.ask.device)] += Less(rank.ask.device_bytes, rank.device_charged);
    }
  }
  return needs;
}

JobQueue::MemoryNeeds JobQueue::Job::Wants() const {
  return NeedsOf(state != JobState::kPreempted, true, kNoSession);
}

JobQueue::MemoryNeeds JobQueue::Job::Claims(SessionId except) const {
  return NeedsOf(!is_new(), state == JobState::kRunning, except);
}

bool JobQueue::Job::has_arenas() const {
  return std::ranges::all_of(ranks, [](const auto& entry) {
    const Rank& rank = entry.second;
    return rank.device_charged > 0 || rank.ask.device_bytes == 0;
  });
}

bool JobQueue::Job::has_any_arena() const {
  return std::ranges::any_of(ranks,
                             [](const auto& entry) { return entry.second.device_charged > 0; });
}

JobQueue::JobQueue(const Ledger* ledger, const Quota* quota, JobQueueOptions options)
    : ledger_(ledger), quota_(quota), options_(options) {}

void JobQueue::SetOptions(const JobQueueOptions& options) {
  options_ = options;
  pace_.changed = true;
}

void JobQueue::SetDrained(bool drained) {
  drained_ = drained;
  pace_.changed = true;
}

// --- sums over all jobs --------------------------------------------------------------------------

void JobQueue::Note(Job* job) {
  Sum(job, {.claims = job->Claims(), .waits = job->waits(), .is_new = job->is_new()});
  untold_.insert(job->id);
}

void JobQueue::Sum(Job* job, Summed now) {
  const std::string& tenant = job->name.tenant;
  for (const auto& [account, bytes] : now.claims) {
    if (bytes > 0) claims_[{tenant, account}] += bytes;
  }
  for (const auto& [account, bytes] : job->summed.claims) {
    if (bytes == 0) continue;
    const auto of_tenant = claims_.find({tenant, account});
    of_tenant->second -= bytes;
    if (of_tenant->second == 0) claims_.erase(of_tenant);
  }
  waiting_ += now.waits ? 1 : 0;
  waiting_ -= job->summed.waits ? 1 : 0;
  if (now.is_new) new_jobs_[tenant] += 1;
  if (job->summed.is_new && --new_jobs_[tenant] == 0) new_jobs_.erase(tenant);
  job->summed = std::move(now);
}

void JobQueue::Erase(Job* job) {
  const JobId id = job->id;
  Sum(job, {});
  untold_.erase(id);
  jobs_.erase(id);
}

bool JobQueue::IsFull(const std::string& tenant) const {
  const auto found = new_jobs_.find(tenant);
  return found != new_jobs_.end() && found->second >= options_.waiting_per_tenant;
}

// --- ranks that come and go ----------------------------------------------------------------------

// The oldest job of this name that lacks this rank; null: there is none.
JobQueue::Job* JobQueue::FindJob(const JobName& name, const RankRequest& ask) {
  for (auto& [id, job] : jobs_) {
    if (job.name == name && !job.complete() && !job.ranks.contains(ask.rank)) return &job;
  }
  return nullptr;
}

JobQueue::Job* JobQueue::AddJob(const JobName& name, const RankRequest& common, Time since) {
  return AddJob(JobId{last_job_ + 1}, name, common, since);
}

JobQueue::Job* JobQueue::AddJob(JobId id, const JobName& name, const RankRequest& common,
                                Time since) {
  last_job_ = std::max(last_job_, Value(id));
  Job& job = jobs_[id];
  job.id = id;
  job.name = name;
  job.common = common;
  job.since = since;
  return &job;
}

absl::Status JobQueue::Join(SessionId session, const JobName& name, const RankRequest& ask,
                            Time now, const RankMemory& has) {
  if (ranks_.contains(session) || undone_.contains(session)) {
    return absl::FailedPreconditionError("the session asked for admission already");
  }
  if (ask.ranks == 0 || ask.priority < kLowestPriority || ask.priority > kHighestPriority) {
    return absl::InvalidArgumentError(
        absl::StrCat("a job of ", ask.ranks, " ranks with priority ", ask.priority,
                     "; a job has at least one rank, and a priority from ", kLowestPriority, " to ",
                     kHighestPriority));
  }
  const Rank rank = {.session = session,
                     .ask = ask,
                     .host_charged = has.host_bytes,
                     .device_charged = has.device_bytes};
  Job* job = FindJob(name, ask);
  if (job != nullptr) {
    const RankRequest& common = job->common;
    if (common.ranks != ask.ranks || common.priority != ask.priority ||
        common.preemptible != ask.preemptible || common.may_wait != ask.may_wait) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rank ", ask.rank, " of job ", name.job, " says ", ask.ranks,
          " ranks on this node and priority ", ask.priority, ", the others ", common.ranks, " and ",
          common.priority, "; start all of its ranks with the same options"));
    }
    if (job->state != JobState::kGathering) return Rejoin(job, rank);
  } else if (IsFull(name.tenant)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "job ", name.job, " is refused: ", options_.waiting_per_tenant, " jobs of ", name.tenant,
        " wait to be admitted, which is the limit; wait until one has begun, end one (geminictl "
        "end), or raise waiting_jobs_per_tenant in the daemon's configuration"));
  } else {
    job = AddJob(name, ask, now);
  }
  job->ranks[ask.rank] = rank;
  ranks_[session] = job->id;
  if (job->complete()) {
    job->state = JobState::kQueued;
    job->since = now;
    job->reason = "it has just arrived";
  }
  pace_.changed = true;
  Note(job);
  return absl::OkStatus();
}

// The earlier daemon's number may be damaged. So name and rank are compared too, and a number from
// kMostJobs on, which no daemon reaches, is ignored.
JobQueue::Job* JobQueue::JobToRestore(const JobName& name, const RankRequest& ask,
                                      const RankState& stood) {
  if (const auto found = jobs_.find(stood.job); found != jobs_.end()) {
    Job& job = found->second;
    if (job.name == name && !job.ranks.contains(ask.rank)) return &job;
  } else if (stood.job != JobId{} && Value(stood.job) < kMostJobs) {
    return AddJob(stood.job, name, ask, stood.since);
  }
  Job* const job = FindJob(name, ask);
  return job != nullptr ? job : AddJob(name, ask, stood.since);
}

void JobQueue::Restore(const JobName& name, const RankRequest& ask, const RankState& stood) {
  Job* const job = JobToRestore(name, ask, stood);
  // Its ranks' books were written one after the other: the most advanced state is the true one.
  if (stood.state > job->state) {
    job->state = stood.state;
    job->since = stood.since;
  }
  job->held = job->held || stood.held;
  job->ranks[ask.rank] = {.session = stood.session, .ask = ask, .yielded = stood.yielded};
  ranks_[stood.session] = job->id;
  if (job->complete() && job->state == JobState::kGathering) job->state = JobState::kQueued;
  pace_.changed = true;
  Note(job);
}

std::vector<JobQueue::RankState> JobQueue::TakeChanges() {
  std::vector<RankState> changes;
  for (const JobId id : std::exchange(untold_, {})) {
    Job& job = jobs_.at(id);
    for (auto& [number, rank] : job.ranks) {
      const RankState now{rank.session, id, job.state, rank.yielded, job.held, job.since};
      if (rank.told.has_value() && *rank.told == now) continue;
      rank.told = now;
      changes.push_back(now);
    }
  }
  return changes;
}

JobId JobQueue::JobOf(SessionId session) const {
  const auto found = ranks_.find(session);
  return found == ranks_.end() ? JobId{} : found->second;
}

// A rank that died joins again, while the others go on: it must fit now.
absl::Status JobQueue::Rejoin(Job* job, const Rank& rank) {
  const RankRequest& ask = rank.ask;
  Job alone;
  alone.name = job->name;
  alone.common = ask;
  alone.ranks[ask.rank] = rank;
  const Room room = MakeRoom(kNoSession);
  const std::optional<Account> lacks = Lacks(alone, room);
  if (lacks.has_value() && job->state == JobState::kRunning) return NoRoom(alone, *lacks, room);
  job->ranks[ask.rank] = alone.ranks[ask.rank];
  // In a job that yields or has yielded, the rank waits with the others.
  job->ranks[ask.rank].yielded = job->state != JobState::kRunning;
  ranks_[rank.session] = job->id;
  pace_.changed = true;
  Note(job);
  return absl::OkStatus();
}

void JobQueue::Leave(SessionId session, Time now) {
  undone_.erase(session);
  const auto found = ranks_.find(session);
  if (found == ranks_.end()) return;
  const auto at = jobs_.find(found->second);
  ranks_.erase(found);
  pace_.changed = true;
  Job& job = at->second;
  std::erase_if(job.ranks, [&](const auto& rank) { return rank.second.session == session; });
  if (job.ranks.empty()) return Erase(&job);
  if (job.state == JobState::kQueued) {
    job.state = JobState::kGathering;
    job.since = now;
  } else if (job.state == JobState::kYielding) {
    EndYield(&job, now);
  }
  Note(&job);
}

// No job asks for disk, or waits for it.
void JobQueue::Charged(SessionId session, Account account, uint64_t bytes) {
  if (account == kDiskAccount) return;
  const auto found = ranks_.find(session);
  uint64_t taken = 0;  // of what was promised
  if (found != ranks_.end()) {
    Job& job = jobs_.at(found->second);
    const bool had_arenas = job.has_arenas();
    const uint64_t promised = job.summed.claims[account];
    for (auto& [number, rank] : job.ranks) {
      if (rank.session != session) continue;
      (account.tier == Tier::kHost ? rank.host_charged : rank.device_charged) += bytes;
    }
    Note(&job);
    taken = promised - job.summed.claims[account];
    // From now on the job can be asked to yield.
    if (!had_arenas && job.has_arenas()) pace_.changed = true;
  }
  // Promised bytes were not free to others before, so taking them shrinks no room.
  if (taken < bytes && waiting_ > 0) pace_.room_shrank = true;
}

void JobQueue::Returned(SessionId session, Account account, uint64_t bytes) {
  if (account == kDiskAccount) return;
  pace_.changed = pace_.changed || waiting_ > 0;
  const auto found = ranks_.find(session);
  if (found == ranks_.end()) return;
  Job& job = jobs_.at(found->second);
  for (auto& [number, rank] : job.ranks) {
    if (rank.session != session) continue;
    uint64_t& charged = account.tier == Tier::kHost ? rank.host_charged : rank.device_charged;
    charged = Less(charged, bytes);
  }
  Note(&job);
}

// --- yielding ------------------------------------------------------------------------------------

void JobQueue::Yielded(SessionId session, Time now) {
  const auto found = ranks_.find(session);
  if (found == ranks_.end()) return;
  pace_.changed = true;
  Job& job = jobs_.at(found->second);
  for (auto& [number, rank] : job.ranks) {
    if (rank.session != session) continue;
    rank.device_charged = 0;
    rank.yielded = true;
  }
  if (job.state == JobState::kRunning) BeginYield(&job, kAtOnce, now);
  EndYield(&job, now);
  Note(&job);
}

void JobQueue::BeginYield(Job* job, double not_before, Time now) {
  ++counters_.preempted;
  job->state = JobState::kYielding;
  job->not_before = not_before;
  job->since = now;
  for (auto& [number, rank] : job->ranks) rank.asked = false;
  pace_.changed = true;
  Note(job);
  EndYield(job, now);
}

void JobQueue::EndYield(Job* job, Time now) {
  if (job->state != JobState::kYielding) return;
  bool all = true;
  for (auto& [number, rank] : job->ranks) {
    if (!rank.yielded && rank.device_charged == 0) {
      rank.yielded = true;
      untold_.insert(job->id);
    }
    all = all && rank.yielded;
  }
  if (!all) return;
  job->state = JobState::kPreempted;
  job->since = Requeued(*job, now);
  Note(job);
}

// A job that yielded comes before waiting jobs of its priority, because it was there first. But it
// comes behind the job that made it yield, or it would take that job's place again.
Time JobQueue::Requeued(const Job& job, Time now) const {
  Time since = now;
  for (const auto& [id, other] : jobs_) {
    if (other.id == job.id || !other.waits()) continue;
    if (other.common.priority == job.common.priority) since = std::min(since, other.since);
  }
  const double earliest = job.not_before + job.common.priority * options_.ageing.seconds();
  return std::max(since, std::min(now, Time::FromNanoseconds(std::llround(earliest * 1e9) + 1)));
}

absl::Status JobQueue::Hold(JobId id) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return absl::NotFoundError("there is no such job");
  Job& job = found->second;
  if (job.state == JobState::kRunning && !job.common.preemptible) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the ranks of job ", job.name.job,
        " do not give their device memory back when they are asked to; end it instead"));
  }
  job.held = true;
  pace_.changed = true;
  untold_.insert(id);
  return absl::OkStatus();
}

absl::Status JobQueue::LetGo(JobId id) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return absl::NotFoundError("there is no such job");
  found->second.held = false;
  if (found->second.state == JobState::kRunning) found->second.reason.clear();
  pace_.changed = true;
  untold_.insert(id);
  return absl::OkStatus();
}

// --- what is promised ----------------------------------------------------------------------------

void JobQueue::Claim(const std::string& tenant, const MemoryNeeds& needs, Room* room) {
  for (const auto& [account, bytes] : needs) room->Claim(tenant, account, bytes);
}

void JobQueue::FreeDevices(const Job& job, Room* room) {
  Unpromise(job, room);
  for (const auto& [number, rank] : job.ranks) {
    room->Free(job.name.tenant, DeviceAccount(rank.ask.device), rank.device_charged);
  }
}

void JobQueue::KeepDevices(const Job& job, Room* room) {
  Claim(job.name.tenant, job.NeedsOf(false, true, kNoSession), room);
  for (const auto& [number, rank] : job.ranks) {
    room->Unfree(job.name.tenant, DeviceAccount(rank.ask.device), rank.device_charged);
  }
}

void JobQueue::Unpromise(const Job& job, Room* room) {
  for (const auto& [account, bytes] : job.NeedsOf(false, true, kNoSession)) {
    room->Unclaim(job.name.tenant, account, bytes);
  }
}

Room JobQueue::MakeRoom(SessionId except) const {
  Room room(*ledger_, *quota_, &claims_);
  const auto found = ranks_.find(except);
  if (found == ranks_.end()) return room;
  const Job& job = jobs_.at(found->second);
  const MemoryNeeds of_others = job.Claims(except);
  for (const auto& [account, bytes] : job.summed.claims) {
    const auto others = of_others.find(account);
    room.Unclaim(job.name.tenant, account,
                 bytes - (others == of_others.end() ? 0 : others->second));
  }
  return room;
}

uint64_t JobQueue::AvailableBytes(SessionId session, const std::string& tenant,
                                  Account account) const {
  return MakeRoom(session).For(tenant, account);
}

uint64_t JobQueue::AvailableToJob(SessionId session, const std::string& tenant,
                                  Account account) const {
  Room room(*ledger_, *quota_, &claims_);
  if (const auto found = ranks_.find(session); found != ranks_.end()) {
    const MemoryNeeds& claims = jobs_.at(found->second).summed.claims;
    for (const auto& [of, bytes] : claims) room.Unclaim(tenant, of, bytes);
  }
  return room.For(tenant, account);
}

std::optional<Account> JobQueue::Lacks(const Job& job, const Room& room) {
  for (const auto& [account, bytes] : job.Wants()) {
    if (bytes > room.For(job.name.tenant, account)) return account;
  }
  return std::nullopt;
}

// --- for people ----------------------------------------------------------------------------------

absl::StatusOr<JobStatus> JobQueue::StandingOf(SessionId session) const {
  const auto undone = undone_.find(session);
  if (undone != undone_.end()) return undone->second;
  const auto found = ranks_.find(session);
  if (found == ranks_.end()) {
    return absl::FailedPreconditionError("the session has not asked for admission");
  }
  const Job& job = jobs_.at(found->second);
  return JobStatus{job.state, job.position, job.reason};
}

// Device memory that was promised to a running job and is not made yet: this can take seconds.
std::string JobQueue::Job::DescribeMissingArenas() const {
  if (state != JobState::kRunning || has_arenas()) return "";
  std::vector<std::string> parts;
  for (const auto& [account, bytes] : NeedsOf(false, true, kNoSession)) {
    if (bytes == 0) continue;
    parts.push_back(absl::StrCat(base::FormatBytes(bytes), " of ", Name(account)));
  }
  return absl::StrCat("starting: does not have its ", absl::StrJoin(parts, " and "), " yet");
}

std::vector<JobSnapshot> JobQueue::Jobs() const {
  std::vector<JobSnapshot> jobs;
  for (const auto& [id, job] : jobs_) {
    JobSnapshot& shown = jobs.emplace_back();
    shown.id = id;
    shown.name = job.name;
    shown.ranks = job.common.ranks;
    for (const auto& [number, rank] : job.ranks) shown.sessions.push_back(rank.session);
    shown.priority = job.common.priority;
    shown.preemptible = job.common.preemptible;
    shown.held = job.held;
    shown.since = job.since;
    shown.standing = {job.state, job.position, job.reason};
    if (job.reason.empty()) shown.standing.reason = job.DescribeMissingArenas();
    if (!job.waits()) continue;
    for (const auto& [account, bytes] : job.Wants()) {
      if (account != kHostAccount) shown.waits_for_device_bytes += bytes;
    }
  }
  return jobs;
}

std::optional<Time> JobQueue::NextDeadline() const {
  if (pace_.changed) return pace_.quiet_until;
  if (!pace_.room_shrank) return pace_.due;
  const Time look = std::max(pace_.decided_at + kPauseWhileRoomShrinks, pace_.quiet_until);
  return std::min(pace_.due.value_or(look), look);
}

}  // namespace geminid::core
