#include "tests/daemon/planner/sharing/simulation.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "daemon/planner/sharing/sharing_problem.h"

namespace geminid::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct Running {
  double pause_until = 0;
};

double RateOf(const SharingJob& job) { return job.row ? job.rows[*job.row].goodput : 0; }

std::optional<std::size_t> BestRow(const SharingJob& job, const ResourceAmounts& room) {
  std::optional<std::size_t> best;
  for (std::size_t r = 0; r < job.rows.size(); ++r) {
    if (!Fits(job.rows[r].share.amounts(), room)) continue;
    if (!best || job.rows[r].goodput > job.rows[*best].goodput) best = r;
  }
  return best;
}

// A node of the search.
struct Point {
  std::vector<double> left;
  std::vector<std::optional<std::size_t>> rows;
  double now = 0;
  double ends = 0;  // the sum so far
};

class Search {
 public:
  Search(const Mix& mix, double move_seconds) : jobs_(mix.jobs), move_seconds_(move_seconds) {}

  Least Run() {
    Point point;
    for (const SharingJob& job : jobs_) point.left.push_back(*job.remaining);
    point.rows.resize(jobs_.size());
    Visit(point);
    return least_;
  }

 private:
  bool Hopeless(const Point& point) const {
    double last = point.now;
    double ends = point.ends;
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      if (point.left[j] <= 0) continue;
      const double end =
          point.now + point.left[j] / jobs_[j].rows[*BestRow(jobs_[j], kNode.amounts())].goodput;
      last = std::max(last, end);
      ends += end;
    }
    return last >= least_.makespan &&
           ends >= least_.mean_completion * static_cast<double>(jobs_.size());
  }

  void Visit(const Point& point) {
    if (Hopeless(point)) return;
    if (std::ranges::all_of(point.left, [](double left) { return left <= 0; })) {
      least_.makespan = std::min(least_.makespan, point.now);
      least_.mean_completion =
          std::min(least_.mean_completion, point.ends / static_cast<double>(jobs_.size()));
      return;
    }
    std::vector<std::optional<std::size_t>> rows(jobs_.size());
    Fill(point, 0, kNode.amounts(), &rows);
  }

  // All ways to give rows to the jobs from `job` on.
  void Fill(const Point& point, std::size_t job, const ResourceAmounts& room,
            std::vector<std::optional<std::size_t>>* rows) {
    if (job == jobs_.size()) {
      if (std::ranges::any_of(*rows, [](const auto& row) { return row.has_value(); })) {
        Advance(point, *rows);
      }
      return;
    }
    (*rows)[job].reset();
    Fill(point, job + 1, room, rows);
    if (point.left[job] <= 0) return;
    for (std::size_t r = 0; r < jobs_[job].rows.size(); ++r) {
      const ResourceAmounts amounts = jobs_[job].rows[r].share.amounts();
      if (!Fits(amounts, room)) continue;
      (*rows)[job] = r;
      Fill(point, job + 1, Minus(room, amounts), rows);
    }
    (*rows)[job].reset();
  }

  void Advance(const Point& from, const std::vector<std::optional<std::size_t>>& rows) {
    double until = kNever;
    std::vector<double> pause(jobs_.size());
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      if (!rows[j]) continue;
      if (from.rows[j] && from.rows[j] != rows[j]) pause[j] = move_seconds_;
      until = std::min(until, pause[j] + from.left[j] / jobs_[j].rows[*rows[j]].goodput);
    }
    Point to = from;
    to.now += until;
    to.rows = rows;
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      if (!rows[j]) continue;
      to.left[j] -= std::max(until - pause[j], 0.0) * jobs_[j].rows[*rows[j]].goodput;
      if (to.left[j] > 1e-6) continue;
      to.left[j] = 0;
      to.rows[j].reset();
      to.ends += to.now;
    }
    Visit(to);
  }

  const std::vector<SharingJob>& jobs_;
  const double move_seconds_;
  Least least_ = {kNever, kNever};
};

}  // namespace

Outcome Simulate(const Mix& mix, double move_seconds, const Policy& policy, const Watch& watch) {
  std::vector<SharingJob> there;
  std::vector<Running> running;
  std::vector<double> came;
  std::size_t next = 0;
  Outcome outcome;
  double now = 0;
  std::optional<double> ask_again;
  while (next < mix.jobs.size() || !there.empty()) {
    for (; next < mix.jobs.size() && mix.jobs[next].since <= now; ++next) {
      there.push_back(mix.jobs[next]);
      came.push_back(mix.jobs[next].since);
      running.emplace_back();
    }
    if (!there.empty()) {
      const Answer answer = policy(there, now);
      if (watch) watch(there, now, answer);
      ask_again = answer.ask_again;
      for (std::size_t j = 0; j < there.size(); ++j) {
        if (there[j].row == answer.rows[j]) continue;
        if (there[j].row) {
          ++outcome.changes;
          running[j].pause_until = now + move_seconds;
        }
        there[j].row = answer.rows[j];
        there[j].since = now;
      }
    }
    double until = next < mix.jobs.size() ? mix.jobs[next].since : kNever;
    if (ask_again && *ask_again > now) until = std::min(until, *ask_again);
    for (std::size_t j = 0; j < there.size(); ++j) {
      const double rate = RateOf(there[j]);
      if (rate > 0) {
        until = std::min(until, std::max(now, running[j].pause_until) + *there[j].remaining / rate);
      }
    }
    if (until == kNever) return {kNever, kNever, outcome.changes};  // some job waits for ever
    for (std::size_t j = 0; j < there.size();) {
      const double begins = std::max(now, running[j].pause_until);
      *there[j].remaining -= std::max(until - begins, 0.0) * RateOf(there[j]);
      if (*there[j].remaining > 1e-6) {
        ++j;
        continue;
      }
      outcome.makespan = until;
      outcome.mean_completion += (until - came[j]) / static_cast<double>(mix.jobs.size());
      const auto at = static_cast<std::ptrdiff_t>(j);
      there.erase(there.begin() + at);
      running.erase(running.begin() + at);
      came.erase(came.begin() + at);
    }
    now = until;
  }
  return outcome;
}

Policy ByGoodput(const SharingSettings& settings, bool work_known) {
  return [settings, work_known](std::span<const SharingJob> jobs, double now) {
    std::vector<SharingJob> told(jobs.begin(), jobs.end());
    for (SharingJob& job : told) {
      if (!work_known) job.remaining.reset();
    }
    const absl::StatusOr<SharingDecision> decision = ShareByGoodput(kNode, told, settings, now);
    if (!decision.ok()) return Answer{std::vector<std::optional<std::size_t>>(jobs.size())};
    return Answer{decision->rows, decision->look_again, decision->moves};
  };
}

Policy Fifo() {
  return [](std::span<const SharingJob> jobs, double) {
    Answer answer;
    ResourceAmounts room = kNode.amounts();
    for (const SharingJob& job : jobs) {
      if (job.row) room = Minus(room, job.rows[*job.row].share.amounts());
    }
    bool held_up = false;
    for (const SharingJob& job : jobs) {
      std::optional<std::size_t> row = job.row;
      if (!row && !held_up) {
        row = BestRow(job, room);
        if (row) room = Minus(room, job.rows[*row].share.amounts());
      }
      held_up = held_up || !row;
      answer.rows.push_back(row);
    }
    return answer;
  };
}

Policy EqualShares() {
  return [](std::span<const SharingJob> jobs, double) {
    ResourceAmounts part = kNode.amounts();
    for (std::uint64_t& amount : part) amount /= jobs.size();
    Answer answer;
    for (const SharingJob& job : jobs) answer.rows.push_back(BestRow(job, part));
    return answer;
  };
}

Least SearchAll(const Mix& mix, double move_seconds) { return Search(mix, move_seconds).Run(); }

}  // namespace geminid::planner
