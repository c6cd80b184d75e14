#include "daemon/planner/sharing/foresight.h"

#include <algorithm>
#include <limits>

namespace geminid::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

std::vector<double> SecondsOf(const SharingProblem& problem) {
  std::vector<double> seconds;
  for (const Competitor& job : problem.jobs) seconds.push_back(job.seconds);
  return seconds;
}

// The jobs keep their rows, and waiting jobs get the remaining room.
RowChoice Keep(const SharingProblem& problem) {
  SharingProblem kept = problem;
  for (Competitor& job : kept.jobs) job.pinned = job.now != kWaits;
  return Choose(kept, Rule{Rule::Kind::kMarginal, 1}, SecondsOf(problem), PinRule::kHold);
}

// Whether the jobs' present rows fit beside the least rows of waiting jobs.
bool CanKeep(const SharingProblem& problem) {
  RowChoice choice;
  for (const Competitor& job : problem.jobs) {
    choice.push_back(job.now == kWaits ? job.least : job.now);
  }
  return Fits(problem.Used(choice), problem.room);
}

}  // namespace

Future Foresee(const SharingProblem& problem, const RowChoice& first, const Rule& rule) {
  const std::size_t count = problem.jobs.size();
  std::vector<double> left = SecondsOf(problem);
  std::vector<double> pause(count);
  RowChoice has(count);
  for (std::size_t j = 0; j < count; ++j) has[j] = problem.jobs[j].now;
  RowChoice next = first;
  Future future;
  double now = 0;
  for (std::size_t ended = 0; ended < count;) {
    double until = kNever;
    std::size_t first_to_end = count;
    for (std::size_t j = 0; j < count; ++j) {
      if (left[j] <= 0) continue;
      if (next[j] != has[j] && has[j] != kWaits) pause[j] = problem.move_seconds;
      const double rate = problem.jobs[j].rows[next[j]].rate;
      const double end = rate > 0 ? pause[j] + left[j] / rate : kNever;
      if (end < until) {
        until = end;
        first_to_end = j;
      }
    }
    if (first_to_end == count) return {kNever, kNever};
    has = next;
    now += until;
    for (std::size_t j = 0; j < count; ++j) {
      if (left[j] <= 0) continue;
      const double worked = std::max(until - pause[j], 0.0);
      pause[j] = std::max(pause[j] - until, 0.0);
      left[j] -= worked * problem.jobs[j].rows[has[j]].rate;
      // A job with less than a nanosecond of work left ends at the same time.
      if (j != first_to_end && left[j] > 1e-9) continue;
      left[j] = 0;
      has[j] = kWaits;
      ++ended;
      future.mean_end += now / static_cast<double>(count);
      future.last_end = now;
    }
    if (ended < count) next = Choose(problem, rule, left, PinRule::kPassed);
  }
  return future;
}

RowChoice ChooseByForesight(const SharingProblem& problem, double least_gain) {
  const std::vector<double> seconds = SecondsOf(problem);
  std::vector<RowChoice> choices;
  std::vector<Future> futures;
  Future best = {kNever, kNever};
  for (const Rule& rule : kRules) {
    choices.push_back(Choose(problem, rule, seconds, PinRule::kHold));
    futures.push_back(Foresee(problem, choices.back(), rule));
    best.last_end = std::min(best.last_end, futures.back().last_end);
    best.mean_end = std::min(best.mean_end, futures.back().mean_end);
  }
  const auto worse = [&best](const Future& future) {
    return std::max(future.last_end / best.last_end, future.mean_end / best.mean_end);
  };
  std::size_t chosen = 0;
  for (std::size_t r = 1; r < choices.size(); ++r) {
    if (worse(futures[r]) < worse(futures[chosen]) - 1e-12) chosen = r;
  }
  if (!CanKeep(problem)) return choices[chosen];
  const RowChoice kept = Keep(problem);
  const Future future = Foresee(problem, kept, kRules[chosen]);
  const double gain =
      (future.last_end / futures[chosen].last_end + future.mean_end / futures[chosen].mean_end) /
          2 -
      1;
  return gain >= least_gain ? choices[chosen] : kept;  // also if `gain` is not a number
}

}  // namespace geminid::planner
