#include "daemon/planner/sharing/rules.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

namespace geminid::planner {
namespace {

// Rows in the process of choice, and the room that they leave.
class Draft {
 public:
  Draft(const SharingProblem& problem, const std::vector<double>& seconds, PinRule pins)
      : problem_(problem), seconds_(seconds), pins_(pins), choice_(problem.jobs.size(), kWaits) {
    for (std::size_t j = 0; j < choice_.size(); ++j) {
      if (has_work(j)) choice_[j] = IsPinned(j) ? problem.jobs[j].now : problem.jobs[j].least;
    }
    free_ = Minus(problem.room, problem.Used(choice_));
  }

  bool has_work(std::size_t job) const { return seconds_[job] > 0; }
  const Competitor::Row& RowOf(std::size_t job) const {
    return problem_.jobs[job].rows[choice_[job]];
  }
  // Whether the job could have the row instead of its own.
  bool May(std::size_t job, std::size_t row) const {
    return Fits(problem_.jobs[job].rows[row].amounts, Plus(free_, RowOf(job).amounts));
  }
  void Take(std::size_t job, std::size_t row) {
    free_ = Minus(Plus(free_, RowOf(job).amounts), problem_.jobs[job].rows[row].amounts);
    choice_[job] = row;
  }
  // The fractions of the room that the row takes beyond the job's present row, summed over
  // resources.
  double Cost(std::size_t job, std::size_t row) const {
    const ResourceAmounts& has = RowOf(job).amounts;
    const ResourceAmounts& wants = problem_.jobs[job].rows[row].amounts;
    double cost = 0;
    for (std::size_t k = 0; k < kResources; ++k) {
      if (wants[k] <= has[k]) continue;
      cost += static_cast<double>(wants[k] - has[k]) / static_cast<double>(problem_.room[k]);
    }
    return cost;
  }
  // Among the rows that the job may have now and that are faster than its own: the row with the
  // highest `worth`.
  struct Step {
    std::size_t job = 0;
    std::size_t row = kWaits;
    double worth = 0;
  };
  template <typename Worth>
  void Improve(std::size_t job, const Worth& worth, Step* best) const {
    if (IsPinned(job)) return;
    const Competitor& contender = problem_.jobs[job];
    const double rate = RowOf(job).rate;
    for (std::size_t row = 1; row < contender.rows.size(); ++row) {
      const double more = contender.rows[row].rate - rate;
      if (more <= 0 || !May(job, row)) continue;
      const double value = worth(row, more);
      if (value > best->worth) *best = {job, row, value};
    }
  }
  const RowChoice& choice() const { return choice_; }

 private:
  bool IsPinned(std::size_t job) const {
    return pins_ == PinRule::kHold && problem_.jobs[job].pinned;
  }

  const SharingProblem& problem_;
  const std::vector<double>& seconds_;
  const PinRule pins_;
  RowChoice choice_;
  ResourceAmounts free_{};
};

constexpr double kFree = 1e-9;  // the cost of a row that takes nothing

void ChooseMarginal(const SharingProblem& problem, double preference,
                    const std::vector<double>& seconds, Draft* draft) {
  std::vector<double> weights(seconds.size());
  for (std::size_t j = 0; j < seconds.size(); ++j) {
    if (seconds[j] > 0) weights[j] = std::pow(seconds[j], -preference);
  }
  while (true) {
    Draft::Step best;
    for (std::size_t j = 0; j < problem.jobs.size(); ++j) {
      if (!draft->has_work(j)) continue;
      draft->Improve(
          j,
          [&](std::size_t row, double more) {
            return weights[j] * more / (draft->Cost(j, row) + kFree);
          },
          &best);
    }
    if (best.worth <= 0) return;
    draft->Take(best.job, best.row);
  }
}

// The job that ends last gets the cheapest larger row. A job that can get no more has no other
// turn.
void ChooseBalanced(const std::vector<double>& seconds, Draft* draft) {
  std::vector<bool> done(seconds.size());
  for (std::size_t j = 0; j < seconds.size(); ++j) done[j] = !draft->has_work(j);
  while (true) {
    std::size_t last = seconds.size();
    double latest = -1;
    for (std::size_t j = 0; j < seconds.size(); ++j) {
      if (done[j]) continue;
      // A waiting job ends last. Among several, the job with the most work ends last.
      const double rate = draft->RowOf(j).rate;
      const double end = rate > 0 ? seconds[j] / rate : 1e15 + seconds[j];
      if (end > latest) std::tie(last, latest) = std::tuple(j, end);
    }
    if (last == seconds.size()) return;
    Draft::Step best;
    draft->Improve(
        last, [&](std::size_t row, double more) { return more / (draft->Cost(last, row) + kFree); },
        &best);
    if (best.worth > 0) {
      draft->Take(best.job, best.row);
    } else {
      done[last] = true;
    }
  }
}

void ChooseInOrder(const std::vector<std::size_t>& order, Draft* draft) {
  for (const std::size_t j : order) {
    if (!draft->has_work(j)) continue;
    Draft::Step best;
    draft->Improve(
        j, [](std::size_t, double more) { return more; }, &best);
    if (best.worth > 0) draft->Take(best.job, best.row);
  }
}

template <typename Key>
std::vector<std::size_t> OrderBy(std::size_t count, const Key& key) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, key);
  return order;
}

}  // namespace

RowChoice Choose(const SharingProblem& problem, const Rule& rule,
                 const std::vector<double>& seconds, PinRule pins) {
  Draft draft(problem, seconds, pins);
  switch (rule.kind) {
    case Rule::Kind::kMarginal:
      ChooseMarginal(problem, rule.preference, seconds, &draft);
      break;
    case Rule::Kind::kBalanced:
      ChooseBalanced(seconds, &draft);
      break;
    case Rule::Kind::kShortest:
      ChooseInOrder(OrderBy(seconds.size(), [&](std::size_t j) { return seconds[j]; }), &draft);
      break;
    case Rule::Kind::kOldest:
      ChooseInOrder(OrderBy(seconds.size(), [&](std::size_t j) { return problem.jobs[j].came; }),
                    &draft);
      break;
  }
  return draft.choice();
}

}  // namespace geminid::planner
