#include "daemon/service/calls/job_sharing.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/processors.h"
#include "daemon/os/log.h"

namespace geminid::service {
namespace {

using planner::JobKey;
using planner::NodeJob;

// A job whose step takes longer than this delays no other job.
constexpr core::Duration kPatience = core::Duration::Seconds(60);
// The patience with a change that has begun: new ranks may wait in the queue or load a large model.
constexpr core::Duration kPatienceOfChange = core::Duration::Seconds(600);
// The most shared jobs and the most waiting jobs. The cost of a decision grows with their number
// cubed.
constexpr size_t kMostJobs = 32;
// The cost of a change in training time: two groups of processes end and begin.
constexpr double kMoveSeconds = 5;
constexpr double kLeastGain = 0.05;

JobKey KeyOf(const ScaleRequests::Job& job) { return {job.tenant, job.name}; }

double Seconds(core::Time time) { return static_cast<double>(time.nanoseconds()) * 1e-9; }

std::set<uint64_t> SessionsOf(const JobKey& job, const ScaleRequests::Sessions& attached) {
  std::set<uint64_t> sessions;
  for (const auto& [session, of_job] : attached) {
    if (KeyOf(of_job) == job) sessions.insert(session);
  }
  return sessions;
}

planner::SharingSettings SettingsOf(const JobSharingOptions& options) {
  return {.least_seconds = absl::ToDoubleSeconds(options.interval),
          .least_gain = kLeastGain,
          .move_seconds = kMoveSeconds};
}

uint64_t RanksOfNode(const core::Engine& engine, const JobSharingOptions& options) {
  if (options.ranks > 0) return options.ranks;
  const auto gpus = std::ranges::count_if(
      engine.devices(), [](const auto& device) { return device.kind == shm::DeviceKind::kCuda; });
  return gpus > 0 ? static_cast<uint64_t>(gpus) : base::AllowedProcessors().size();
}

// The memory of a job's sessions.
struct Holding {
  uint64_t ranks = 0;  // sessions with an arena
  uint64_t bytes = 0;  // of arenas
};

// Builds a view. Its methods are called in their order here.
class Viewer {
 public:
  Viewer(const core::Engine& engine, const JobSharingOptions& options, core::Time now)
      : engine_(engine),
        options_(options),
        now_(now),
        room_(engine.jobs().RoomFor(core::kNoSession)),
        standing_(engine.jobs().Jobs()) {
    for (const core::SessionSnapshot& session : engine.Sessions()) {
      if (session.arena_bytes == 0) continue;
      Holding& holding = holdings_[{session.spec.tenant, session.spec.job}];
      ++holding.ranks;
      holding.bytes += session.arena_bytes;
    }
  }

  // Adds a job whose ranks may change. The ledger counts its ranks, whatever the job says. A job
  // without memory cannot be asked.
  void AddShared(const ScaleRequests::Shared& shared, bool by_people) {
    const auto holding = holdings_.find(KeyOf(shared.job));
    if (holding == holdings_.end()) return;
    NodeJob& job = view_.jobs.emplace_back();
    job.key = holding->first;
    job.ranks = holding->second.ranks;
    job.memory_bytes = holding->second.bytes;
    for (const v1::RanksRow& row : shared.share.rows()) {
      job.rows.push_back({row.ranks(), row.device_bytes(), row.goodput()});
    }
    if (shared.share.has_remaining()) job.remaining = shared.share.remaining();
    job.fixed = WhyFixed(shared, by_people);
    const core::JobSnapshot* const standing = FindStanding(job.key);
    if (standing != nullptr) job.priority = standing->priority;
    job.most_bytes = job.memory_bytes + LeftOfLimit(job.key.tenant);
    view_.room.memory_bytes += job.memory_bytes;
    shared_.insert(job.key);
  }

  // Gives the jobs of a tenant, in turn, the part of its guarantee that its other sessions leave.
  // The part that they do not have yet is free for them alone.
  void AddGuarantees() {
    std::map<std::string, uint64_t> left, missing;
    for (const auto& device : engine_.devices()) {
      const core::Account account = core::DeviceAccount(device.index);
      for (const std::string& tenant : engine_.quota().GuaranteedTenants()) {
        left[tenant] += engine_.quota().GuaranteedBytes(tenant, account);
        missing[tenant] +=
            room_.LeftByOthers(tenant, account) -
            std::min(room_.LeftByOthers("", account), room_.LeftByOthers(tenant, account));
      }
    }
    for (const auto& [key, holding] : holdings_) {
      const auto of_tenant = left.find(key.tenant);
      if (of_tenant == left.end() || shared_.contains(key)) continue;
      of_tenant->second -= std::min(of_tenant->second, holding.bytes);
    }
    for (NodeJob& job : view_.jobs) {
      const auto of_tenant = left.find(job.key.tenant);
      if (of_tenant == left.end()) continue;
      job.guaranteed_bytes = of_tenant->second;
      uint64_t takes = job.memory_bytes;
      for (const auto& row : planner::UsableRows(job)) {
        if (row.share.memory_bytes > job.guaranteed_bytes) continue;
        takes = std::max(takes, row.share.memory_bytes);
      }
      of_tenant->second -= std::min(of_tenant->second, takes);
      const uint64_t more = std::min(missing[job.key.tenant], takes - job.memory_bytes);
      missing[job.key.tenant] -= more;
      view_.room.memory_bytes += more;
    }
  }

  // Subtracts the ranks of jobs with a fixed number of ranks.
  void TakeRanks() {
    uint64_t taken = 0;
    for (const auto& [key, holding] : holdings_) taken += shared_.contains(key) ? 0 : holding.ranks;
    const uint64_t all = RanksOfNode(engine_, options_);
    view_.room.ranks = all - std::min(all, taken);
    for (const auto& device : engine_.devices()) {
      view_.room.memory_bytes += room_.LeftByOthers("", core::DeviceAccount(device.index));
    }
  }

  // Adds the first jobs of the queue. Their priority includes the levels that the queue gives them
  // for waiting.
  void AddWaiting() {
    std::vector<core::JobSnapshot> waiting;
    for (const core::JobSnapshot& job : standing_) {
      const bool is_new = job.standing.state == core::JobState::kQueued;
      if (job.waits_for_device_bytes == 0 || job.held) continue;
      if (is_new && engine_.jobs().drained()) continue;
      if (job.waits_for_device_bytes > LeftOfLimit(job.name.tenant)) continue;
      waiting.push_back(job);
    }
    std::ranges::stable_sort(waiting, {}, [](const auto& job) { return job.standing.position; });
    waiting.resize(std::min(waiting.size(), kMostJobs));
    for (const core::JobSnapshot& job : waiting) {
      const int64_t levels =
          options_.queue_ageing > core::Duration() ? (now_ - job.since) / options_.queue_ageing : 0;
      NodeJob& waits = view_.jobs.emplace_back();
      waits.key = {job.name.tenant, job.name.job};
      waits.priority = static_cast<int32_t>(
          std::min<int64_t>(job.priority + levels, core::kHighestPriority - core::kLowestPriority));
      waits.memory_bytes = job.waits_for_device_bytes;
    }
  }

  NodeView Take() { return std::move(view_); }

 private:
  const core::JobSnapshot* FindStanding(const JobKey& key) const {
    for (const core::JobSnapshot& job : standing_) {
      if (job.name.tenant == key.tenant && job.name.job == key.job) return &job;
    }
    return nullptr;
  }

  std::string WhyFixed(const ScaleRequests::Shared& shared, bool by_people) const {
    if (!shared.why_not.empty()) return shared.why_not;
    if (engine_.jobs().drained()) {
      return "the node drains, and would not admit other ranks; 'geminictl drain --undo' ends that";
    }
    if (by_people) {
      return absl::StrCat("a user asked for that number; 'geminictl scale ", shared.job.name,
                          " auto' lets the daemon choose again");
    }
    const core::JobSnapshot* const standing = FindStanding(KeyOf(shared.job));
    if (standing == nullptr) return "it did not ask for admission";
    if (standing->held) return "it is evicted";
    if (standing->standing.state != core::JobState::kRunning) {
      return absl::StrCat("it is ", core::Name(standing->standing.state));
    }
    const uint64_t ranks = holdings_.at(KeyOf(shared.job)).ranks;
    if (ranks == shared.ranks) return "";
    return absl::StrCat("it reports ", base::Counted(shared.ranks, "rank"),
                        ", but the daemon has handed out memory for ",
                        base::Counted(ranks, "rank"));
  }

  uint64_t LeftOfLimit(const std::string& tenant) const {
    uint64_t left = 0;
    for (const auto& device : engine_.devices()) {
      const uint64_t here =
          std::min(room_.LeftOfLimit(tenant, core::DeviceAccount(device.index)),
                   engine_.ledger().Totals(core::DeviceAccount(device.index)).capacity_bytes);
      left += here;
    }
    return left;
  }

  const core::Engine& engine_;
  const JobSharingOptions& options_;
  const core::Time now_;
  const core::Room room_;
  const std::vector<core::JobSnapshot> standing_;
  std::map<JobKey, Holding> holdings_;
  std::set<JobKey> shared_;
  NodeView view_;
};

}  // namespace

NodeView ViewOf(const core::Engine& engine, const std::vector<ScaleRequests::Shared>& shared,
                const std::set<JobKey>& by_people, const JobSharingOptions& options,
                core::Time now) {
  Viewer viewer(engine, options, now);
  for (size_t i = 0; i < std::min(shared.size(), kMostJobs); ++i) {
    viewer.AddShared(shared[i], by_people.contains(KeyOf(shared[i].job)));
  }
  viewer.AddGuarantees();
  viewer.TakeRanks();
  viewer.AddWaiting();
  return viewer.Take();
}

JobSharing::JobSharing(const JobSharingOptions& options, SessionHub* hub, ScaleRequests* requests,
                       TenantLog* log, SharingCounts* counts)
    : options_(options),
      hub_(hub),
      requests_(requests),
      log_(log),
      counts_(counts),
      sharing_(SettingsOf(options)) {}

void JobSharing::Step(const JobKey& job, uint64_t ranks, const ScaleRequests::Sessions& attached,
                      core::Time now) {
  if (options_.interval == absl::ZeroDuration()) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // the offer of another job takes this step
  RunOf(job, attached, now);
  sharing_.Saw(job, ranks, Seconds(now));
  if (!IsSettled(attached, now) || !sharing_.IsDue(Seconds(now))) return;
  const std::vector<ScaleRequests::Shared> shared = requests_->SharedJobs(attached, now);
  std::set<JobKey> by_people;
  for (const auto& [key, run] : runs_) {
    if (run.held) by_people.insert(key);
  }
  const NodeView view = hub_->Inspect([&](const core::Engine& engine, const auto&) {
    return ViewOf(engine, shared, by_people, options_, now);
  });
  const std::optional<planner::RanksRequest> request =
      sharing_.Next(view.room, view.jobs, Seconds(now));
  if (request) Ask(*request, attached, now);
}

bool JobSharing::IsSettled(const ScaleRequests::Sessions& attached, core::Time now) {
  if (!sharing_.pending()) return true;
  const absl::StatusOr<v1::ScaleRequest> request = requests_->Get(number_, attached, now);
  if (!request.ok()) {
    End(false, std::string(request.status().message()), now);
  } else if (request->state() == "done" || request->state() == "refused") {
    End(request->state() == "done", request->message(), now);
  } else if (const core::Duration patience =
                 request->state() == "taken" ? kPatienceOfChange : kPatience;
             now - asked_ >= patience) {
    const std::string why = absl::StrCat(
        request->state() == "taken" ? "it is not done within " : "it did not answer within ",
        patience.seconds(), " s");
    requests_->Withdraw(number_, why);
    End(false, why, now);
  }
  return !sharing_.pending();
}

void JobSharing::Ask(const planner::RanksRequest& request, const ScaleRequests::Sessions& attached,
                     core::Time now) {
  v1::ScaleJobRequest wanted;
  wanted.set_job(request.job.job);
  wanted.set_ranks(static_cast<uint32_t>(request.to));
  log_->Write(request.job.tenant, os::LogLevel::kInfo, "job asked to change its ranks",
              {{"tenant", request.job.tenant},
               {"job", request.job.job},
               {"ranks_before", absl::StrCat(request.from)},
               {"ranks", absl::StrCat(request.to)},
               {"by", "the daemon"},
               {"why", request.why}});
  const auto asked =
      requests_->Ask(request.job.tenant, wanted, attached, now, ScaleRequests::Asker::kDaemon);
  asked_ = now;
  if (asked.ok()) {
    number_ = asked->number();
  } else {
    End(false, std::string(asked.status().message()), now);
  }
}

void JobSharing::End(bool done, const std::string& message, core::Time now) {
  const planner::RanksRequest request = *sharing_.pending();
  if (done) {
    sharing_.Done(Seconds(now));
  } else {
    sharing_.Refused(message, Seconds(now));
  }
  ++(done ? counts_->done : counts_->refused);
  log_->Write(request.job.tenant, done ? os::LogLevel::kInfo : os::LogLevel::kWarning,
              done ? "job has changed its ranks" : "job did not change its ranks",
              {{"tenant", request.job.tenant},
               {"job", request.job.job},
               {"ranks_before", absl::StrCat(request.from)},
               {"ranks", absl::StrCat(request.to)},
               {"message", message}});
}

JobSharing::Run& JobSharing::RunOf(const JobKey& job, const ScaleRequests::Sessions& attached,
                                   core::Time now) {
  FollowRuns(attached, now);
  const auto [found, is_new] = runs_.try_emplace(job);
  if (is_new) found->second = {.sessions = SessionsOf(job, attached), .seen = now};
  return found->second;
}

void JobSharing::Hold(const JobKey& job, uint64_t number, const ScaleRequests::Sessions& attached,
                      core::Time now) {
  const std::lock_guard lock(mutex_);
  Run& run = RunOf(job, attached, now);
  run.was_held = run.held;
  run.held = true;
  run.asked = number;
}

bool JobSharing::Keep(const JobKey& job, uint64_t ranks, const ScaleRequests::Sessions& attached,
                      core::Time now) {
  if (requests_->IsAsked({job.tenant, job.job}, attached, now)) return false;
  const auto shared = requests_->SharedJobs(attached, now);
  const bool has = std::ranges::any_of(
      shared, [&](const auto& one) { return KeyOf(one.job) == job && one.ranks == ranks; });
  if (has) Hold(job, 0, attached, now);
  return has;
}

void JobSharing::Follow(const ScaleRequests::Sessions& attached, core::Time now) {
  const std::lock_guard lock(mutex_);
  FollowRuns(attached, now);
}

// A later run of the same name is another job. Between two groups of ranks a run has no sessions,
// for a moment or for as long as the change takes.
void JobSharing::FollowRuns(const ScaleRequests::Sessions& attached, core::Time now) {
  for (auto at = runs_.begin(); at != runs_.end();) {
    const JobKey& job = at->first;
    Run& run = at->second;
    std::set<uint64_t> here = SessionsOf(job, attached);
    const bool goes_on =
        std::ranges::any_of(here, [&run](uint64_t id) { return run.sessions.contains(id); });
    const bool changes = !goes_on && requests_->IsAsked({job.tenant, job.job}, attached, now);
    if (!goes_on && !changes && now - run.seen > kPatience) {
      sharing_.Ended(job);
      at = runs_.erase(at);
      continue;
    }
    if (changes || !here.empty()) run.seen = now;
    if (!here.empty()) run.sessions = std::move(here);
    SettleHold(&run, attached, now);
    ++at;
  }
}

// A number that the ranks refused is not held.
void JobSharing::SettleHold(Run* run, const ScaleRequests::Sessions& attached, core::Time now) {
  if (run->asked == 0) return;
  const absl::StatusOr<v1::ScaleRequest> request = requests_->Get(run->asked, attached, now);
  const bool is_refused = request.ok() && request->state() == "refused";
  if (request.ok() && !is_refused && request->state() != "done") return;
  if (is_refused) run->held = run->was_held;
  run->asked = 0;
}

bool JobSharing::Release(const JobKey& job, const ScaleRequests::Sessions& attached,
                         core::Time now) {
  const auto shared = requests_->SharedJobs(attached, now);
  if (std::ranges::none_of(shared, [&](const auto& one) { return KeyOf(one.job) == job; })) {
    return false;
  }
  const std::lock_guard lock(mutex_);
  Run& run = RunOf(job, attached, now);
  run.held = false;
  run.asked = 0;
  return true;
}

void JobSharing::Describe(const ScaleRequests::Sessions& attached, core::Time now,
                          v1::ListJobsResponse* jobs) {
  std::map<JobKey, ScaleRequests::Shared> shared;
  for (ScaleRequests::Shared& job : requests_->SharedJobs(attached, now)) {
    shared.emplace(KeyOf(job.job), std::move(job));
  }
  const std::lock_guard lock(mutex_);
  for (v1::JobInfo& job : *jobs->mutable_jobs()) {
    const auto found = shared.find({job.tenant(), job.job()});
    if (found == shared.end()) continue;
    const planner::JobShare share = sharing_.ShareOf(found->first, Seconds(now));
    v1::JobSharing* const sharing = job.mutable_sharing();
    *sharing->mutable_rows() = found->second.share.rows();
    sharing->set_ranks(found->second.ranks);
    sharing->set_best_ranks(static_cast<uint32_t>(share.best_ranks));
    sharing->set_gain(share.gain);
    if (options_.interval == absl::ZeroDuration()) {
      sharing->set_why("sharing_interval is 0: the daemon changes no ranks");
    } else {
      sharing->set_why(share.why.empty() ? "the daemon has not decided about it yet" : share.why);
    }
  }
}

}  // namespace geminid::service
