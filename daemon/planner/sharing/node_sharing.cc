#include "daemon/planner/sharing/node_sharing.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/counted.h"
#include "daemon/planner/sharing/sharing_problem.h"

namespace geminid::planner {
namespace {

constexpr double kLongAgo = -std::numeric_limits<double>::infinity();
constexpr int kMostDoublings = 6;
// How long a job is remembered that is between two groups of ranks, or waits. After that it is
// another job.
constexpr double kRemembered = 3600;
constexpr std::size_t kJobsNamed = 3;

std::string Ranks(uint64_t ranks) { return base::Counted(ranks, "rank"); }

std::string Name(const JobKey& job) { return absl::StrCat(job.job, " of ", job.tenant); }

// The gain in speed as text: "38%". Large gains are uncertain, so the text is vague.
std::string Faster(double gain) {
  if (gain > 9) return "more than ten times as fast";
  return absl::StrCat(std::llround(gain * 100), "% faster");
}

std::string Seconds(double seconds) { return absl::StrCat(std::llround(seconds), " s"); }

std::string Join(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(names.size(), kJobsNamed);
  std::string joined =
      absl::StrJoin(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", ");
  if (names.size() > shown) absl::StrAppend(&joined, " and ", names.size() - shown, " more");
  return joined;
}

}  // namespace

// The jobs at one instant, in the scheduler's form.
struct NodeSharing::Look {
  ResourceAmounts room{};
  std::span<const NodeJob> jobs;
  std::vector<SharingJob> sharing;  // by job
  std::vector<std::string> fixed;   // why the job is fixed; empty: it is not
  // The jobs had more than the room, so this job's row in the decision is smaller than its own.
  std::vector<bool> squeezed;

  const GoodputRow& Has(std::size_t j) const {
    return sharing[j].rows[*RowOfNow(jobs[j], sharing[j].rows)];
  }
  bool Waits(std::size_t j) const { return jobs[j].ranks == 0; }
  ResourceAmounts Held() const {
    ResourceAmounts held{};
    for (const SharingJob& job : sharing) held = Plus(held, AmountsOf(job, job.row));
    return held;
  }
  // Widens the room to hold the guaranteed rows of all jobs, which exist whatever the report says.
  void Widen(const Share& least) {
    const ResourceAmounts amounts = least.amounts();
    for (std::size_t k = 0; k < kResources; ++k) room[k] = std::max(room[k], amounts[k]);
  }
  // Gives smaller rows to jobs until all fit: the lowest priority first, and then the job with the
  // most ranks.
  bool Squeeze(const std::vector<std::size_t>& least) {
    while (!Fits(Held(), room)) {
      std::optional<std::size_t> from;
      for (std::size_t j = 0; j < jobs.size(); ++j) {
        if (Waits(j) || *sharing[j].row <= least[j]) continue;
        if (!from ||
            std::pair(jobs[j].priority, -static_cast<int64_t>(jobs[j].ranks)) <
                std::pair(jobs[*from].priority, -static_cast<int64_t>(jobs[*from].ranks))) {
          from = j;
        }
      }
      if (!from) return false;
      sharing[*from].row = least[*from];
      sharing[*from].since = kLongAgo;
      squeezed[*from] = true;
    }
    return true;
  }
};

void NodeSharing::Saw(const JobKey& job, uint64_t ranks, double now) {
  const auto [at, is_new] = entries_.try_emplace(job);
  Entry& entry = at->second;
  if (is_new || entry.ranks != ranks) entry.since = now;
  entry.ranks = ranks;
  entry.seen = now;
}

void NodeSharing::Ended(const JobKey& job) {
  if (!pending_ || pending_->job != job) entries_.erase(job);
}

void NodeSharing::Forget(double now) {
  std::erase_if(entries_, [&](const auto& entry) {
    return now - entry.second.seen > kRemembered && !(pending_ && pending_->job == entry.first);
  });
}

std::string NodeSharing::WhyFixed(const NodeJob& job, double now) const {
  if (!job.fixed.empty()) return job.fixed;
  const auto found = entries_.find(job.key);
  if (found == entries_.end() || now >= found->second.not_before) return "";
  const Entry& entry = found->second;
  return absl::StrCat("it was asked for ", Ranks(entry.refused_ranks),
                      " and refused: ", entry.refusal, "; it is asked again in ",
                      Seconds(entry.not_before - now));
}

std::optional<RanksRequest> NodeSharing::Next(const Share& room, std::span<const NodeJob> jobs,
                                              double now) {
  if (pending_) return std::nullopt;
  for (const NodeJob& job : jobs) {
    if (job.ranks > 0) Saw(job.key, job.ranks, now);
  }
  Forget(now);
  if (plan_.empty() && now >= decide_at_) {
    decide_at_ = now + settings_.least_seconds;
    Decide(room, jobs, now);
  }
  if (plan_.empty()) return std::nullopt;
  RanksRequest next = std::move(plan_.front());
  plan_.pop_front();
  if (!StillFits(next, room, jobs)) {
    plan_.clear();  // the node has changed since the plan was made
    return std::nullopt;
  }
  return pending_ = std::move(next);
}

bool NodeSharing::StillFits(const RanksRequest& request, const Share& room,
                            std::span<const NodeJob> jobs) const {
  ResourceAmounts used{}, others{};
  bool is_there = false;
  for (const NodeJob& job : jobs) {
    if (job.ranks == 0) continue;
    const std::vector<GoodputRow> rows = UsableRows(job);
    const bool is_it = job.key == request.job;
    const uint64_t ranks = is_it ? request.to : job.ranks;
    const auto row = std::ranges::find(rows, ranks, [](const auto& r) { return r.share.ranks; });
    if (row == rows.end() || (is_it && job.ranks != request.from)) return false;
    is_there = is_there || is_it;
    used = Plus(used, row->share.amounts());
    if (!is_it) others = Plus(others, row->share.amounts());
  }
  if (!is_there || request.to < request.from) return is_there;
  // While the job has no ranks, the queue admits waiting jobs that fit, and the job would wait for
  // their end.
  for (const NodeJob& job : jobs) {
    if (job.ranks > 0) continue;
    const ResourceAmounts waits_for = UsableRows(job).front().share.amounts();
    if (!Fits(Plus(others, waits_for), room.amounts())) continue;
    others = Plus(others, waits_for);
    used = Plus(used, waits_for);
  }
  return Fits(used, room.amounts());
}

void NodeSharing::Done(double now) {
  if (!pending_) return;
  Saw(pending_->job, pending_->to, now);
  entries_[pending_->job].refusals = 0;
  pending_.reset();
}

void NodeSharing::Refused(const std::string& why, double now) {
  if (!pending_) return;
  Entry& entry = entries_[pending_->job];
  entry.seen = now;
  entry.refusals = std::min(entry.refusals + 1, kMostDoublings);
  entry.refused_ranks = pending_->to;
  entry.refusal = why;
  entry.not_before = now + settings_.least_seconds * std::exp2(entry.refusals);
  pending_.reset();
  plan_.clear();  // later moves may need this job's memory
}

JobShare NodeSharing::ShareOf(const JobKey& job, double now) const {
  const auto found = entries_.find(job);
  if (found == entries_.end()) return {};
  JobShare share = found->second.share;
  if (pending_ && pending_->job == job) {
    share.why = absl::StrCat("it is asked for ", Ranks(pending_->to), ": ", pending_->why);
  } else if (now < found->second.not_before) {
    share.why = WhyFixed({.key = job}, now);
  }
  return share;
}

// --- decisions -----------------------------------------------------------------------------------

void NodeSharing::Decide(const Share& room, std::span<const NodeJob> jobs, double now) {
  Look look = {.room = room.amounts(), .jobs = jobs, .sharing = {}, .fixed = {}, .squeezed = {}};
  look.squeezed.resize(jobs.size());
  std::vector<std::size_t> least;
  Share least_of_all;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    NodeJob job = jobs[j];
    job.fixed = WhyFixed(job, now);
    look.fixed.push_back(job.fixed);
    const auto entry = entries_.find(job.key);
    SharingJob& sharing = look.sharing.emplace_back();
    sharing = {
        .id = j, .priority = job.priority, .rows = UsableRows(job), .remaining = RemainingOf(job)};
    sharing.row = RowOfNow(job, sharing.rows);
    sharing.since = entry == entries_.end() || look.Waits(j) ? now : entry->second.since;
    least.push_back(look.Waits(j) ? 0 : LeastRowOf(job, sharing.rows));
    if (look.Waits(j)) continue;
    sharing.guarantee = sharing.rows[least[j]].share;
    least_of_all.memory_bytes += sharing.guarantee.memory_bytes;
    least_of_all.ranks += sharing.guarantee.ranks;
  }
  look.Widen(least_of_all);
  if (!look.Squeeze(least)) return;
  const Share node = {.memory_bytes = look.room[0], .ranks = look.room[1]};
  const auto decision = ShareByGoodput(node, look.sharing, settings_, now);
  if (!decision.ok()) {
    for (const NodeJob& job : jobs) {
      entries_[job.key].share.why = std::string(decision.status().message());
    }
    return;
  }
  PlanMoves(look, *decision);
  Explain(look, *decision);
}

void NodeSharing::PlanMoves(const Look& look, const SharingDecision& decision) {
  const auto plan = [&](std::size_t j) {
    plan_.push_back({.job = look.jobs[j].key,
                     .from = look.jobs[j].ranks,
                     .to = look.sharing[j].rows[*decision.rows[j]].share.ranks,
                     .why = WhyMove(look, decision, j)});
  };
  const bool is_squeezed = std::ranges::find(look.squeezed, true) != look.squeezed.end();
  if (!is_squeezed) {
    for (const Move& move : decision.moves) {
      if (move.from && move.to) plan(move.job);  // the queue admits waiting jobs when there is room
    }
    return;
  }
  // Jobs that grow wait for the next decision, when the room holds all present rows.
  for (std::size_t j = 0; j < look.jobs.size(); ++j) {
    if (!look.squeezed[j] || !decision.rows[j]) continue;
    if (look.sharing[j].rows[*decision.rows[j]].share.ranks < look.jobs[j].ranks) plan(j);
  }
}

// --- words ---------------------------------------------------------------------------------------

std::string NodeSharing::WhyMove(const Look& look, const SharingDecision& decision,
                                 std::size_t j) const {
  const GoodputRow& has = look.Has(j);
  const GoodputRow& gets = look.sharing[j].rows[*decision.rows[j]];
  if (gets.goodput > has.goodput) {
    return absl::StrCat("it learns ", Faster(gets.goodput / has.goodput - 1), " with them");
  }
  if (gets.share.ranks > has.share.ranks) return "its tenant is guaranteed the memory of them";
  std::vector<std::string> others;
  for (std::size_t o = 0; o < look.jobs.size(); ++o) {
    if (o == j || !decision.rows[o]) continue;
    const GoodputRow& row = look.sharing[o].rows[*decision.rows[o]];
    if (look.Waits(o)) {
      others.push_back(absl::StrCat(Name(look.jobs[o].key), ", which waits for ",
                                    base::FormatBytes(row.share.memory_bytes)));
    } else if (row.share.ranks > look.jobs[o].ranks) {
      others.push_back(absl::StrCat(Name(look.jobs[o].key), ", which learns ",
                                    Faster(row.goodput / look.Has(o).goodput - 1), " with ",
                                    Ranks(row.share.ranks)));
    }
  }
  if (!others.empty()) return absl::StrCat("makes room for ", Join(others));
  if (look.squeezed[j]) return "the node has no room for the ranks of all of its jobs";
  return "fewer ranks learn as fast";
}

void NodeSharing::Explain(const Look& look, const SharingDecision& decision) {
  for (std::size_t j = 0; j < look.jobs.size(); ++j) {
    if (look.Waits(j)) continue;
    const std::vector<GoodputRow>& rows = look.sharing[j].rows;
    const auto best =
        std::ranges::max_element(rows, {}, [](const GoodputRow& row) { return row.goodput; });
    JobShare& share = entries_[look.jobs[j].key].share;
    share = {};
    if (rows.size() > 1) {
      share.best_ranks = best->share.ranks;
      share.gain = best->goodput / look.Has(j).goodput - 1;
    }
    share.why = WhyStays(look, decision, j);
  }
}

std::string NodeSharing::WhyStays(const Look& look, const SharingDecision& decision,
                                  std::size_t j) const {
  if (!look.fixed[j].empty()) return look.fixed[j];
  const std::vector<GoodputRow>& rows = look.sharing[j].rows;
  const GoodputRow& has = look.Has(j);
  const auto best =
      std::ranges::max_element(rows, {}, [](const GoodputRow& row) { return row.goodput; });
  for (const RanksRequest& request : plan_) {
    if (request.job == look.jobs[j].key) {
      return absl::StrCat("it will get ", Ranks(request.to), ": ", request.why);
    }
  }
  if (best->goodput <= has.goodput) return "no other number of ranks learns faster";
  const std::string would = absl::StrCat(Ranks(best->share.ranks), " would learn ",
                                         Faster(best->goodput / has.goodput - 1));
  ResourceAmounts with = best->share.amounts();
  std::vector<std::string> others;
  for (std::size_t o = 0; o < look.jobs.size(); ++o) {
    if (o == j || !decision.rows[o]) continue;
    with = Plus(with, planner::AmountsOf(look.sharing[o], decision.rows[o]));
    others.push_back(look.Waits(o)
                         ? absl::StrCat(Name(look.jobs[o].key), " (waits)")
                         : absl::StrCat(Name(look.jobs[o].key), " (",
                                        Ranks(look.sharing[o].rows[*decision.rows[o]].share.ranks),
                                        ")"));
  }
  if (Fits(with, look.room)) return absl::StrCat(would, "; a change is not worth its pause yet");
  if (others.empty()) return absl::StrCat(would, "; the node has no room for them");
  return absl::StrCat(would, "; the node has no room for them beside ", Join(others));
}

}  // namespace geminid::planner
