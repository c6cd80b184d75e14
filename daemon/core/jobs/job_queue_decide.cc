// Deciding which jobs are admitted, which are undone, and which must yield.
#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "daemon/core/jobs/job_queue.h"

namespace geminid::core {
namespace {

// "1 of its 2 ranks on this node attached (0)".
template <typename Ranks>
std::string Came(const Ranks& ranks, uint32_t expected) {
  const std::string came = absl::StrJoin(
      ranks, ", ", [](std::string* out, const auto& rank) { absl::StrAppend(out, rank.first); });
  return absl::StrCat(ranks.size(), " of its ", expected, " ranks on this node attached (", came,
                      ")");
}

// How often a decision looks at each job, at least.
constexpr uint64_t kPasses = 8;
// A look takes 0.1 to 1 us, so a long queue uses a few hundredths of a processor.
constexpr Duration kPausePerLook = Duration::Nanoseconds(20'000);
constexpr uint64_t kLooksWithoutPause = 512;

}  // namespace

void JobQueue::Undo(const Job& job, const absl::Status& why) {
  ++counters_.undone;
  for (const auto& [number, rank] : job.ranks) {
    undone_[rank.session] = why;
    ranks_.erase(rank.session);
  }
  Erase(&jobs_.at(job.id));
}

void JobQueue::UndoLate(Time now) {
  std::vector<const Job*> late;
  for (auto& [id, job] : jobs_) {
    if (job.state != JobState::kGathering) continue;
    job.reason = absl::StrCat("waits for its other ranks: ", Came(job.ranks, job.common.ranks));
    if (now - job.since >= options_.gather_time) late.push_back(&job);
  }
  for (const Job* job : late) {
    Undo(*job, absl::DeadlineExceededError(absl::StrCat(
                   "job ", job->name.job, " is not admitted: ", Came(job->ranks, job->common.ranks),
                   " within ", options_.gather_time.seconds(),
                   " s; start all of its ranks together, or see why the others ended")));
  }
}

// Undoes jobs that can never fit: limits and guarantees do not change by waiting.
void JobQueue::UndoImpossible() {
  const Room room(*ledger_, *quota_);
  std::vector<std::pair<const Job*, absl::Status>> impossible;
  for (const auto& [id, job] : jobs_) {
    if (job.state != JobState::kGathering && job.state != JobState::kQueued) continue;
    for (const auto& [account, bytes] : job.Wants()) {
      const uint64_t most = room.MostFor(job.name.tenant, account);
      if (bytes <= most) continue;
      impossible.emplace_back(
          &job, absl::ResourceExhaustedError(absl::StrCat(
                    "job ", job.name.job, " can never be admitted: its ", job.ranks.size(),
                    job.ranks.size() == 1 ? " rank asks for " : " ranks ask for ",
                    base::FormatBytes(bytes), " of ", Name(account), ", and ", job.name.tenant,
                    " can have at most ", base::FormatBytes(most), " of the daemon's ",
                    base::FormatBytes(ledger_->Totals(account).capacity_bytes),
                    "; ask for less, or raise the limits in the daemon's configuration")));
      break;
    }
  }
  for (const auto& [job, why] : impossible) Undo(*job, why);
}

// A job that has an arena from ranks that died comes first: only the job itself can move to host
// memory what is there, and jobs before it may wait for that arena. Of the others, one level of
// priority equals `ageing` of waiting. Ties go to the job of higher priority, then to the one that
// ran before, then to the older one.
JobQueue::QueueOrder JobQueue::TurnOf(const Job& job) const {
  return {!job.has_any_arena(),
          job.since.nanoseconds() * 1e-9 - job.common.priority * options_.ageing.seconds(),
          -job.common.priority, job.state != JobState::kPreempted, Value(job.id)};
}

std::vector<JobQueue::Job*> JobQueue::InTurn() {
  std::vector<Job*> waiting;
  for (auto& [id, job] : jobs_) {
    job.position = 0;
    if (job.waits()) waiting.push_back(&job);
  }
  std::ranges::sort(waiting, [this](Job* a, Job* b) { return TurnOf(*a) < TurnOf(*b); });
  for (size_t i = 0; i < waiting.size(); ++i) waiting[i]->position = static_cast<uint32_t>(i + 1);
  return waiting;
}

// The state of one decision about all jobs.
struct JobQueue::Decision {
  Decision(const JobQueue& queue, Time decided_at)
      : now(decided_at),
        claims(queue.claims_),
        to_new(*queue.ledger_, *queue.quota_, &claims),
        to_preempted(*queue.ledger_, *queue.quota_, &claims) {}
  Decision(const Decision&) = delete;
  Decision& operator=(const Decision&) = delete;

  const Time now;
  const TenantBytes claims;  // as they were before the decision
  // The room that earlier jobs leave to a new job, or to a preempted one.
  Room to_new;
  Room to_preempted;
  // What jobs give back when they yield: arenas, and promises of arenas not made yet.
  struct Returns {
    TenantBytes arenas;
    TenantBytes promises;

    void Add(const Job& job) {
      for (const auto& [number, rank] : job.ranks) {
        arenas[{job.name.tenant, DeviceAccount(rank.ask.device)}] += rank.device_charged;
      }
      if (job.state != JobState::kRunning) return;
      for (const auto& [account, bytes] : job.NeedsOf(false, true, kNoSession)) {
        promises[{job.name.tenant, account}] += bytes;
      }
    }
    void SupposeIn(Room* room) const {
      for (const auto& [key, bytes] : arenas) room->Free(key.first, key.second, bytes);
      for (const auto& [key, bytes] : promises) room->Unclaim(key.first, key.second, bytes);
    }
  };
  // What the jobs that were asked to yield will give back.
  Returns yields;
  // Jobs that may be asked to yield, the lowest priority and then the youngest first.
  std::vector<Job*> victims;
  // By priority: what the victims of this and of all lower priorities hold.
  std::map<int32_t, Returns> held_up_to;
  // Tenants with an overdue job: their other jobs are asked too, but not counted on.
  std::set<std::string> unreliable;
};

JobActions JobQueue::Decide(Time now) {
  JobActions actions;
  const std::optional<Time> due = NextDeadline();
  if (!due.has_value() || *due > now) return actions;
  const uint64_t looks_before = pace_.looks;
  pace_.changed = pace_.room_shrank = false;
  UndoLate(now);
  UndoImpossible();
  YieldHeld(now);
  // The last rank of an earlier daemon's job may have yielded or ended without a record of it.
  for (auto& [id, job] : jobs_) EndYield(&job, now);
  Decision decision(*this, now);
  FindVictims(&decision);
  for (Job* job : InTurn()) DecideOn(job, &decision, &actions);
  (void)InTurn();  // new positions, without the jobs that were admitted
  AskYielding(&actions);
  BeginPause(now, looks_before);
  return actions;
}

// Sets when the clock alone requires the next decision, and how long no decision is made.
void JobQueue::BeginPause(Time now, uint64_t looks_before) {
  pace_.due.reset();
  for (const auto& [id, job] : jobs_) {
    const std::optional<Time> due = DueOf(job, now);
    if (due.has_value()) pace_.due = std::min(pace_.due.value_or(*due), *due);
  }
  pace_.looks += kPasses * jobs_.size();
  pace_.decided_at = now;
  const uint64_t looks = pace_.looks - looks_before;
  if (looks <= kLooksWithoutPause) return;
  pace_.quiet_until =
      now + Duration::Nanoseconds(static_cast<int64_t>(looks) * kPausePerLook.nanoseconds());
}

std::optional<Time> JobQueue::DueOf(const Job& job, Time now) const {
  if (job.state == JobState::kGathering) return job.since + options_.gather_time;
  const bool yields = job.state == JobState::kYielding && !IsOverdue(job, now);
  const bool starts = job.state == JobState::kRunning && !HasStarted(job, now) &&
                      job.common.preemptible && (waiting_ > 0 || job.held);
  if (!yields && !starts) return std::nullopt;
  return job.since + options_.yield_time;
}

bool JobQueue::HasStarted(const Job& job, Time now) const {
  if (job.has_arenas()) return true;
  // A rank with an arena may be waiting for another rank, and could not give it back.
  return !job.has_any_arena() && now - job.since >= options_.yield_time;
}

bool JobQueue::IsOverdue(const Job& job, Time now) const {
  return job.state == JobState::kYielding && now - job.since >= options_.yield_time;
}

bool JobQueue::IsHeld(SessionId session) const {
  const auto found = ranks_.find(session);
  return found != ranks_.end() && jobs_.at(found->second).held;
}

bool JobQueue::IsToYield(SessionId session) const {
  const auto found = ranks_.find(session);
  if (found == ranks_.end()) return false;
  const Job& job = jobs_.at(found->second);
  return job.held || job.state == JobState::kYielding;
}

void JobQueue::YieldHeld(Time now) {
  for (auto& [id, job] : jobs_) {
    if (!job.held || job.state != JobState::kRunning) continue;
    if (HasStarted(job, now)) BeginYield(&job, kAtOnce, now);
    job.reason = "the operator moves it to host memory";
  }
}

void JobQueue::DecideOn(Job* job, Decision* decision, JobActions* actions) {
  // A rank that died left its arena. The job runs until it has moved to host memory what is there.
  const bool must_yield = job->has_any_arena() && job->common.preemptible;
  if (job->held && !must_yield) {
    job->reason = "the operator holds it in host memory; geminictl evict --undo lets it go on";
    return;
  }
  if (drained_ && job->state == JobState::kQueued) {
    job->reason = "the operator drains the daemon, which takes no new jobs";
    return;
  }
  if (!job->complete()) {  // a rank of a preempted job died: the others will end too
    job->reason = Came(job->ranks, job->common.ranks);
    return;
  }
  const MemoryNeeds wants = job->Wants();
  const Room& room = job->state == JobState::kPreempted ? decision->to_preempted : decision->to_new;
  const std::optional<Account> lacks = Lacks(*job, room);
  if (!lacks.has_value()) {
    Claim(job->name.tenant, wants, &decision->to_new);
    Claim(job->name.tenant, wants, &decision->to_preempted);
    return Admit(job, decision->now, actions);
  }
  if (!job->common.may_wait && job->state == JobState::kQueued) {
    return Undo(*job, NoRoom(*job, *lacks, room));
  }
  job->reason = WhyNot(*job, *lacks, room);
  if (MakeWay(*job, room, decision)) {
    absl::StrAppend(&job->reason, "; jobs of lower priority were asked to make room");
  }
  ClaimFor(*job, wants, decision);
}

// Jobs behind this one get only what it leaves. But if its own tenant's limit blocks it, it
// reserves nothing and blocks no other job. And preempted jobs hold host memory: if this job lacks
// host memory, it reserves no device from them, or each would wait for the other.
void JobQueue::ClaimFor(const Job& job, const MemoryNeeds& wants, Decision* decision) {
  const std::string& tenant = job.name.tenant;
  const bool within_limit = std::ranges::all_of(wants, [&](const auto& want) {
    return want.second <= decision->to_new.LeftOfLimit(tenant, want.first);
  });
  if (!within_limit) return;
  const auto host = wants.find(kHostAccount);
  const bool lacks_host =
      host != wants.end() && host->second > decision->to_new.LeftByOthers(tenant, kHostAccount);
  Claim(tenant, wants, &decision->to_new);
  if (!lacks_host) Claim(tenant, wants, &decision->to_preempted);
}

void JobQueue::Admit(Job* job, Time now, JobActions* actions) {
  ++counters_.admitted;
  job->state = JobState::kRunning;
  job->since = now;
  job->position = 0;
  job->reason.clear();
  pace_.changed = pace_.changed || job->held;  // it must yield at once
  for (auto& [number, rank] : job->ranks) {
    rank.asked = rank.yielded = false;
    actions->admitted.push_back(rank.session);
  }
  Note(job);
}

// Finds what jobs give back already, and which other jobs may be asked to.
void JobQueue::FindVictims(Decision* decision) {
  decision->yields = {};
  decision->victims.clear();
  decision->held_up_to.clear();
  pace_.looks += jobs_.size();
  for (auto& [id, job] : jobs_) {
    if (IsOverdue(job, decision->now)) {
      decision->unreliable.insert(job.name.tenant);
      job.reason =
          absl::StrCat("was asked for its device memory, and has not given it back in ",
                       options_.yield_time.seconds(),
                       " s; others are asked instead; geminictl end ", job.name.job, " ends it");
    } else if (job.state == JobState::kYielding) {
      decision->yields.Add(job);
    } else if (job.state == JobState::kRunning && job.common.preemptible && job.complete() &&
               HasStarted(job, decision->now)) {
      decision->victims.push_back(&job);
    }
  }
  std::ranges::sort(decision->victims, [](const Job* a, const Job* b) {
    return std::pair(a->common.priority, -a->since.nanoseconds()) <
           std::pair(b->common.priority, -b->since.nanoseconds());
  });
  Decision::Returns held;
  for (const Job* victim : decision->victims) {
    held.Add(*victim);
    decision->held_up_to[victim->common.priority] = held;
  }
}

// True: the job fits once all jobs that have been asked give back what they hold. No job is asked
// if all of them together would not suffice.
bool JobQueue::MakeWay(const Job& job, const Room& room, Decision* decision) {
  Room supposed = room;
  decision->yields.SupposeIn(&supposed);
  if (!Lacks(job, supposed).has_value()) return true;
  const auto above = decision->held_up_to.lower_bound(job.common.priority);
  if (above == decision->held_up_to.begin()) return false;
  Room most = supposed;
  std::prev(above)->second.SupposeIn(&most);
  if (Lacks(job, most).has_value()) return false;
  for (Job* victim : ChooseVictims(job, std::move(supposed), *decision)) {
    for (Room* left : {&decision->to_new, &decision->to_preempted}) Unpromise(*victim, left);
    BeginYield(victim, std::get<kWhen>(TurnOf(job)), decision->now);
    victim->reason = absl::StrCat("makes room for a job of priority ", job.common.priority);
  }
  FindVictims(decision);
  return true;
}

// Jobs of an unreliable tenant are asked too, but not counted on.
std::vector<JobQueue::Job*> JobQueue::ChooseVictims(const Job& job, Room supposed,
                                                    const Decision& decision) {
  const auto counts = [&](const Job* victim) {
    return !decision.unreliable.contains(victim->name.tenant);
  };
  std::vector<Job*> chosen;
  for (Job* victim : decision.victims) {
    if (victim->common.priority >= job.common.priority) break;
    ++pace_.looks;
    chosen.push_back(victim);
    if (counts(victim)) FreeDevices(*victim, &supposed);
    if (!Lacks(job, supposed).has_value()) break;
  }
  // A job that is not needed after all stays; those of the highest priority are spared first.
  for (size_t i = chosen.size(); i-- > 0;) {
    if (!counts(chosen[i])) continue;
    KeepDevices(*chosen[i], &supposed);
    if (Lacks(job, supposed).has_value()) {
      FreeDevices(*chosen[i], &supposed);
    } else {
      chosen.erase(chosen.begin() + static_cast<int64_t>(i));
    }
  }
  return chosen;
}

void JobQueue::AskYielding(JobActions* actions) {
  for (auto& [id, job] : jobs_) {
    if (job.state != JobState::kYielding) continue;
    for (auto& [number, rank] : job.ranks) {
      if (rank.yielded || std::exchange(rank.asked, true)) continue;
      actions->asked_to_yield.push_back(rank.session);
    }
  }
}

std::string JobQueue::WhyNot(const Job& job, Account account, const Room& room) const {
  const uint64_t needs = job.Wants().at(account);
  const uint64_t there = room.For(job.name.tenant, account);
  const uint64_t without_others = Room(*ledger_, *quota_).For(job.name.tenant, account);
  std::string why = absl::StrCat("needs ", base::FormatBytes(needs), " of ", Name(account),
                                 ", of which it can have ", base::FormatBytes(there));
  if (there < room.LeftByOthers(job.name.tenant, account)) {
    absl::StrAppend(&why, "; ", job.name.tenant, " may have ",
                    base::FormatBytes(quota_->LimitBytes(job.name.tenant, account)));
  } else if (without_others > there) {
    absl::StrAppend(&why, "; ", base::FormatBytes(without_others - there),
                    " are promised to jobs before it");
  }
  return why;
}

absl::Status JobQueue::NoRoom(const Job& job, Account account, const Room& room) const {
  return absl::ResourceExhaustedError(
      absl::StrCat("job ", job.name.job, " is not admitted: it ", WhyNot(job, account, room),
                   "; wait for another job to end, ask for less, or let it wait in the queue"));
}

}  // namespace geminid::core
