// Deciding which jobs are admitted, which are undone, and which must yield.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "daemon/core/job_queue.h"

namespace geminid::core {
namespace {

// "1 of its 2 ranks on this node came (0)".
template <typename Ranks>
std::string Came(const Ranks& ranks, uint32_t expected) {
  const std::string came = absl::StrJoin(
      ranks, ", ", [](std::string* out, const auto& rank) { absl::StrAppend(out, rank.first); });
  return absl::StrCat(ranks.size(), " of its ", expected, " ranks on this node came (", came, ")");
}

}  // namespace

void JobQueue::Undo(const Job& job, const absl::Status& why) {
  ++counters_.undone;
  for (const auto& [number, rank] : job.ranks) {
    undone_[rank.session] = why;
    ranks_.erase(rank.session);
  }
  jobs_.erase(job.id);
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

// By its limits, or by what others are guaranteed: neither goes away by waiting.
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

// A level of priority is worth `ageing` of waiting; of two of the same turn, the one of higher
// priority, then the one that ran before, then the older one.
JobQueue::Turn JobQueue::TurnOf(const Job& job) const {
  return {job.since.nanoseconds() * 1e-9 - job.common.priority * options_.ageing.seconds(),
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

JobActions JobQueue::Decide(Time now) {
  JobActions actions;
  const std::optional<Time> due = NextDeadline();
  if (!due.has_value() || *due > now) return actions;
  changed_ = false;
  UndoLate(now);
  UndoImpossible();
  YieldHeld(now);
  // Of a job that an earlier daemon knew, the last rank may have yielded, or ended, unnoted.
  for (auto& [id, job] : jobs_) EndYield(&job, now);
  Left left = {MakeRoom(kNoSession), MakeRoom(kNoSession)};
  for (Job* job : InTurn()) DecideOn(job, &left, now, &actions);
  (void)InTurn();  // those that were admitted have left their positions
  AskYielding(&actions);
  return actions;
}

void JobQueue::YieldHeld(Time now) {
  for (auto& [id, job] : jobs_) {
    if (!job.held || job.state != JobState::kRunning) continue;
    if (job.has_arenas()) BeginYield(&job, kAtOnce, now);
    job.reason = "the operator moves it to host memory";
  }
}

void JobQueue::DecideOn(Job* job, Left* left, Time now, JobActions* actions) {
  if (job->held) {
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
  const Needs wants = job->Wants();
  const Room& room = job->state == JobState::kPreempted ? left->to_preempted : left->to_new;
  const std::optional<Account> lacks = Lacks(*job, room);
  if (!lacks.has_value()) {
    Claim(job->name.tenant, wants, &left->to_new);
    Claim(job->name.tenant, wants, &left->to_preempted);
    return Admit(job, now, actions);
  }
  if (!job->common.may_wait && job->state == JobState::kQueued) {
    return Undo(*job, NoRoom(*job, *lacks, room));
  }
  job->reason = WhyNot(*job, *lacks, room);
  if (MakeWay(*job, room, now)) {
    absl::StrAppend(&job->reason, "; jobs of lower priority were asked to make room");
  }
  ClaimFor(*job, wants, left);
}

// Whoever is behind gets only what this one leaves. But what its own tenant's limit keeps from it
// is kept from nobody else. And a preempted job still holds host memory: while that is what this
// one lacks, it keeps no device from those, or each would wait for the other.
void JobQueue::ClaimFor(const Job& job, const Needs& wants, Left* left) {
  const std::string& tenant = job.name.tenant;
  const bool within_limit = std::ranges::all_of(wants, [&](const auto& want) {
    return want.second <= left->to_new.LeftOfLimit(tenant, want.first);
  });
  if (!within_limit) return;
  const auto host = wants.find(kHostAccount);
  const bool lacks_host =
      host != wants.end() && host->second > left->to_new.LeftByOthers(tenant, kHostAccount);
  Claim(tenant, wants, &left->to_new);
  if (!lacks_host) Claim(tenant, wants, &left->to_preempted);
}

void JobQueue::Admit(Job* job, Time now, JobActions* actions) {
  ++counters_.admitted;
  job->state = JobState::kRunning;
  job->since = now;
  job->position = 0;
  job->reason.clear();
  for (auto& [number, rank] : job->ranks) {
    rank.asked = rank.yielded = false;
    actions->admitted.push_back(rank.session);
  }
}

// Those that a higher priority moves, the least and the youngest first.
std::vector<JobQueue::Job*> JobQueue::VictimsFor(const Job& job) {
  std::vector<Job*> victims;
  for (auto& [id, other] : jobs_) {
    if (other.state == JobState::kRunning && other.common.preemptible && other.complete() &&
        other.has_arenas() && other.common.priority < job.common.priority) {
      victims.push_back(&other);
    }
  }
  std::ranges::sort(victims, [](const Job* a, const Job* b) {
    return std::pair(a->common.priority, -a->since.nanoseconds()) <
           std::pair(b->common.priority, -b->since.nanoseconds());
  });
  return victims;
}

// True when the job fits once all that have been asked gave back what they hold. Nobody is asked
// where that would not do.
bool JobQueue::MakeWay(const Job& job, const Room& room, Time now) {
  const auto fits_without = [&](const std::vector<Job*>& gone) {
    Room supposed = room;
    for (auto& [id, other] : jobs_) {
      if (other.state == JobState::kYielding) FreeArenas(other, &supposed);
    }
    for (const Job* victim : gone) FreeArenas(*victim, &supposed);
    return !Lacks(job, supposed).has_value();
  };
  std::vector<Job*> victims;
  if (fits_without(victims)) return true;
  for (Job* victim : VictimsFor(job)) {
    victims.push_back(victim);
    if (fits_without(victims)) break;
  }
  if (victims.empty() || !fits_without(victims)) return false;
  // Who is not needed after all stays: those of the highest priority before the others.
  for (size_t i = victims.size(); i-- > 0;) {
    std::vector<Job*> fewer = victims;
    fewer.erase(fewer.begin() + static_cast<int64_t>(i));
    if (fits_without(fewer)) victims = std::move(fewer);
  }
  for (Job* victim : victims) {
    BeginYield(victim, std::get<0>(TurnOf(job)), now);
    victim->reason = absl::StrCat("makes room for a job of priority ", job.common.priority);
  }
  return true;
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
