#include "daemon/planner/bound/step_bound.h"

#include <algorithm>
#include <cstddef>
#include <queue>
#include <utility>

#include "daemon/planner/contract/link_model.h"
#include "daemon/planner/retention/retention.h"

namespace geminid::planner {
namespace {

// Windows start at the boundary, at the moment of least capacity, and at this many others.
constexpr std::int64_t kInnerWindows = 3;

double LeastLoadSeconds(const LinkModel& link, const Item& item) {
  return link.latency_seconds + static_cast<double>(item.transfer_bytes) / UpBytesPerSecond(link);
}

double LeastSecondsPerByte(const LinkModel& link, const Item& item) {
  return LeastLoadSeconds(link, item) / static_cast<double>(item.extent_bytes);
}

// The loads after the moment `start`. A start of -1 is the iteration boundary.
class LoadsAfter {
 public:
  LoadsAfter(const LinkModel& link, const Problem& problem,
             const std::vector<std::int64_t>& free_bytes, std::int64_t start)
      : link_(link),
        problem_(problem),
        free_bytes_(free_bytes),
        start_(start),
        forced_seconds_(static_cast<std::size_t>(problem.num_moments), 0),
        held_bytes_(problem.gaps.size(), 0),
        starting_(static_cast<std::size_t>(problem.num_moments - start)),
        ending_(static_cast<std::size_t>(problem.num_moments - start)) {
    ChooseLevel();
    for (std::uint32_t g = 0; g < problem.gaps.size(); ++g) Enter(g);
  }

  // Per moment, the least seconds of the loads that are issued after `start` and due by the moment.
  std::vector<double> Run();

 private:
  // Only loads that take at least level_ seconds per byte compete, and each counts as level_. The
  // level is the smallest of the items' values that is at least half of the largest.
  void ChooseLevel() {
    double most = 0;
    for (const Item& item : problem_.items) most = std::max(most, LeastSecondsPerByte(link_, item));
    level_ = most;
    for (const Item& item : problem_.items) {
      const double seconds = LeastSecondsPerByte(link_, item);
      if (seconds >= most / 2) level_ = std::min(level_, seconds);
    }
  }

  void Enter(std::uint32_t g) {
    const Gap& gap = problem_.gaps[g];
    const Item& item = problem_.items[gap.item];
    const std::int64_t shift = gap.crosses_boundary ? problem_.num_moments : 0;
    const std::int64_t first = gap.first - shift;
    const std::int64_t last = gap.last - shift;
    if (last < start_) return;  // due at start_ or before
    const bool spans = first <= start_;
    const bool stale = start_ == -1 && item.changes && gap.crosses_boundary;
    if (stale || (!spans && !gap.valued)) {
      forced_seconds_[static_cast<std::size_t>(last + 1)] += LeastLoadSeconds(link_, item);
      return;
    }
    if (last < first || LeastSecondsPerByte(link_, item) < level_) return;
    starting_[static_cast<std::size_t>(std::max(first, start_) - start_)].push_back(g);
    ending_[static_cast<std::size_t>(last - start_)].push_back(g);
  }

  const LinkModel& link_;
  const Problem& problem_;
  const std::vector<std::int64_t>& free_bytes_;
  const std::int64_t start_;
  double level_ = 0;
  std::vector<double> forced_seconds_;  // by the moment at which they are due
  std::vector<std::int64_t> held_bytes_;
  std::vector<std::vector<std::uint32_t>> starting_, ending_;  // gaps, by moments after start_
};

std::vector<double> LoadsAfter::Run() {
  const std::int64_t n = problem_.num_moments;
  std::vector<double> seconds(static_cast<std::size_t>(n), 0);
  std::priority_queue<std::pair<std::int64_t, std::uint32_t>> by_end;
  std::int64_t occupied = 0;
  std::int64_t lost = 0;
  double forced = 0;
  for (std::int64_t t = start_; t < n; ++t) {
    if (t > start_) {
      forced += forced_seconds_[static_cast<std::size_t>(t)];
      seconds[static_cast<std::size_t>(t)] = forced + level_ * static_cast<double>(lost);
    }
    const auto step = static_cast<std::size_t>(t - start_);
    for (const std::uint32_t g : starting_[step]) {
      const Gap& gap = problem_.gaps[g];
      held_bytes_[g] = problem_.items[gap.item].extent_bytes;
      occupied += held_bytes_[g];
      by_end.emplace(gap.last - (gap.crosses_boundary ? n : 0), g);
    }
    const std::int64_t free_bytes = free_bytes_[static_cast<std::size_t>((t + n) % n)];
    while (occupied > free_bytes) {
      const std::uint32_t g = by_end.top().second;
      const std::int64_t given = std::min(held_bytes_[g], occupied - free_bytes);
      held_bytes_[g] -= given;
      occupied -= given;
      if (held_bytes_[g] == 0) by_end.pop();
    }
    for (const std::uint32_t g : ending_[step]) {
      lost += problem_.items[problem_.gaps[g].item].extent_bytes - held_bytes_[g];
      occupied -= held_bytes_[g];
    }
  }
  return seconds;
}

// Element t: the least seconds of the loads between the end of moment t - 1 and the start of t.
// They are the loads of chunks that t uses and that do not fit at t - 1.
std::vector<double> WaitsBetweenMoments(const Trace& trace, const Problem& problem,
                                        const std::vector<std::int64_t>& free_bytes) {
  const std::int64_t n = problem.num_moments;
  struct New {
    std::int64_t bytes = 0;
    double least_seconds = 0;
    double least_seconds_per_byte = 0;
  };
  std::vector<New> entering(static_cast<std::size_t>(n));
  for (const Gap& gap : problem.gaps) {
    if (gap.last < gap.first && gap.valued) continue;  // the moment before uses it too
    const Item& item = problem.items[gap.item];
    New& at = entering[static_cast<std::size_t>((gap.last + 1) % n)];
    const double seconds = LeastLoadSeconds(trace.link, item);
    const double per_byte = LeastSecondsPerByte(trace.link, item);
    const bool first = at.bytes == 0;
    at.least_seconds = first ? seconds : std::min(at.least_seconds, seconds);
    at.least_seconds_per_byte = first ? per_byte : std::min(at.least_seconds_per_byte, per_byte);
    at.bytes += item.extent_bytes;
  }
  std::vector<double> waits(static_cast<std::size_t>(n), 0);
  for (std::size_t t = 0; t < waits.size(); ++t) {
    const std::size_t before = t == 0 ? waits.size() - 1 : t - 1;
    const std::int64_t outside = entering[t].bytes - free_bytes[before];
    if (outside <= 0) continue;
    waits[t] = std::max(entering[t].least_seconds,
                        entering[t].least_seconds_per_byte * static_cast<double>(outside));
  }
  return waits;
}

std::vector<std::int64_t> WindowStarts(const Problem& problem) {
  const std::vector<std::int64_t>& capacity = problem.capacity_bytes;
  std::vector<std::int64_t> starts = {
      -1, std::min_element(capacity.begin(), capacity.end()) - capacity.begin()};
  for (std::int64_t i = 1; i <= kInnerWindows; ++i) {
    starts.push_back(problem.num_moments * i / (kInnerWindows + 1));
  }
  std::sort(starts.begin(), starts.end());
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  return starts;
}

// The end of the iteration, after the gradients that the optimizer waits for.
double EarliestEnd(const Trace& trace, const PlannerOptions& options, const Problem& problem,
                   const std::vector<double>& starts) {
  std::vector<double> leaving(trace.moments.size(), 0);
  for (const Item& item : problem.items) {
    for (const ItemUse& use : item.uses) {
      if (!use.invalidates || item.gradient_bytes == 0) continue;
      leaving[static_cast<std::size_t>(use.moment)] +=
          trace.link.latency_seconds +
          static_cast<double>(item.gradient_bytes) / DownBytesPerSecond(trace.link);
    }
  }
  double end = 0;
  double tail = 0;
  for (std::size_t t = trace.moments.size(); t-- > 0;) {
    if (options.weights_change_between_iterations) tail += leaving[t];
    end = std::max(end, starts[t] + trace.moments[t].compute_seconds + tail);
  }
  return end;
}

}  // namespace

std::vector<double> EarliestStarts(const Trace& trace, const PlannerOptions& options,
                                   const Problem& problem) {
  const std::vector<std::int64_t> free_bytes = FreeBytesForGaps(problem);
  const std::vector<double> waits = WaitsBetweenMoments(trace, problem, free_bytes);
  std::vector<double> earliest = waits;
  for (const std::int64_t start : WindowStarts(problem)) {
    // Starts ascend, so no later window changes when the moment of this one can end.
    for (std::size_t t = 1; t < earliest.size(); ++t) {
      const double after_previous =
          earliest[t - 1] + trace.moments[t - 1].compute_seconds + waits[t];
      earliest[t] = std::max(earliest[t], after_previous);
    }
    const auto from = static_cast<std::size_t>(std::max<std::int64_t>(start, 0));
    const double end_of_start =
        start < 0 ? 0 : earliest[from] + trace.moments[from].compute_seconds;
    const std::vector<double> loads = LoadsAfter(trace.link, problem, free_bytes, start).Run();
    for (std::size_t t = static_cast<std::size_t>(start + 1); t < earliest.size(); ++t) {
      earliest[t] = std::max(earliest[t], end_of_start + loads[t]);
    }
  }
  for (std::size_t t = 1; t < earliest.size(); ++t) {
    const double after_previous = earliest[t - 1] + trace.moments[t - 1].compute_seconds + waits[t];
    earliest[t] = std::max(earliest[t], after_previous);
  }
  earliest.push_back(EarliestEnd(trace, options, problem, earliest));
  return earliest;
}

double LeastStepSeconds(const Trace& trace, const Problem& problem,
                        const std::vector<double>& earliest, std::uint64_t least_up_bytes) {
  double down = 0;
  for (const Item& item : problem.items) {
    for (const ItemUse& use : item.uses) {
      if (use.invalidates) down += static_cast<double>(item.gradient_bytes);
    }
  }
  const double up_seconds = static_cast<double>(least_up_bytes) / UpBytesPerSecond(trace.link);
  const double down_seconds = down / DownBytesPerSecond(trace.link);
  return std::max(earliest.back(), BothDirectionsSeconds(trace.link, up_seconds, down_seconds));
}

void MarkUnavoidable(const Trace& trace, const std::vector<double>& earliest,
                     std::vector<Stall>& stalls) {
  double computed = 0;
  double accounted = 0;
  std::size_t next = 0;
  for (std::size_t t = 0; t < earliest.size(); ++t) {
    for (; next < stalls.size() && stalls[next].moment == t; ++next) {
      Stall& stall = stalls[next];
      stall.unavoidable_seconds =
          std::clamp(earliest[t] - computed - accounted, 0.0, stall.seconds);
      accounted += stall.unavoidable_seconds;
    }
    if (t < trace.moments.size()) computed += trace.moments[t].compute_seconds;
  }
}

}  // namespace geminid::planner
