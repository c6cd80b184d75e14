#include "daemon/planner/timeline/timeline.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "daemon/planner/contract/link_model.h"
#include "daemon/planner/problem/free_bytes.h"

namespace geminid::planner {
namespace {

// The start of each moment if nothing ever stalled, unrolled over the iterations.
class IdealClock {
 public:
  explicit IdealClock(const Trace& trace) : starts_{0} {
    for (const MomentTrace& moment : trace.moments) {
      starts_.push_back(starts_.back() + moment.compute_seconds);
    }
  }

  double StartOf(std::int64_t moment) const {
    const std::int64_t n = num_moments();
    const std::int64_t cycle = (moment >= 0 ? moment : moment - n + 1) / n;
    return static_cast<double>(cycle) * starts_.back() +
           starts_[static_cast<std::size_t>(moment - cycle * n)];
  }

  // The last moment in [-N, N] that starts at or before `seconds`; -N if none does.
  std::int64_t LastStartedBy(double seconds) const {
    const std::int64_t n = num_moments();
    if (seconds >= 0) return Find(seconds);
    return Find(seconds + starts_.back()) - n;
  }

 private:
  std::int64_t num_moments() const { return static_cast<std::int64_t>(starts_.size()) - 1; }
  std::int64_t Find(double seconds) const {
    const auto after = std::upper_bound(starts_.begin(), starts_.end(), seconds);
    return std::max<std::int64_t>(0, after - starts_.begin() - 1);
  }

  std::vector<double> starts_;  // one more than moments
};

// The time to allow for a load while gradients may leave.
double LoadSecondsBesideGradients(const LinkModel& link, const Item& item) {
  return link.latency_seconds + static_cast<double>(item.transfer_bytes) /
                                    (UpBytesPerSecond(link) * link.both_directions_share);
}

// Per entry of `order`, when its load must start for all loads to be in time. The loop passes the
// next iteration first, because its early loads may have to share the end of this one.
std::vector<double> LatestStarts(const Trace& trace, const Problem& problem,
                                 const IdealClock& clock, const std::vector<ResidencyDraft>& drafts,
                                 const std::vector<std::uint32_t>& order) {
  std::vector<double> latest(order.size());
  double next_start = std::numeric_limits<double>::infinity();
  for (std::int64_t cycle = 1; cycle >= 0; --cycle) {
    const std::int64_t shift = cycle * problem.num_moments;
    for (std::size_t i = order.size(); i-- > 0;) {
      const ResidencyDraft& draft = drafts[order[i]];
      const Item& item = problem.items[draft.item];
      const double finish = std::min(clock.StartOf(draft.first_moment + shift), next_start);
      latest[i] = finish - LoadSecondsBesideGradients(trace.link, item);
      next_start = item.changes ? std::max(latest[i], clock.StartOf(shift)) : latest[i];
    }
  }
  return latest;
}

// First moment at which the chunk has no other extent: the end of its previous draft.
std::int64_t EndOfDraftBefore(const Problem& problem, const ResidencyDraft& draft) {
  const Item& item = problem.items[draft.item];
  const bool wraps = draft.first_use == 0;
  const ItemUse& before = wraps ? item.uses.back() : item.uses[draft.first_use - 1];
  return before.free_moment - (wraps ? problem.num_moments : 0);
}

// The earliest moment at which a load may be issued, and the cause if that is later than `wanted`.
struct Earliest {
  std::int64_t moment;
  StallCause cause;
};

Earliest EarliestIssue(const PlannerOptions& options, const Problem& problem,
                       const ResidencyDraft& draft, std::int64_t wanted) {
  Earliest earliest{wanted, StallCause::kLink};
  const auto at_least = [&](std::int64_t moment, StallCause cause) {
    if (moment > earliest.moment) earliest = {moment, cause};
  };
  at_least(draft.first_moment - static_cast<std::int64_t>(options.max_lookahead_moments),
           StallCause::kLookahead);
  if (problem.items[draft.item].changes) at_least(0, StallCause::kIterationBoundary);
  at_least(EndOfDraftBefore(problem, draft), StallCause::kSpace);
  return earliest;
}

}  // namespace

std::vector<std::uint32_t> LoadOrder(const std::vector<ResidencyDraft>& drafts) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < drafts.size(); ++i) {
    if (!drafts[i].permanent) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    if (drafts[a].first_moment != drafts[b].first_moment) {
      return drafts[a].first_moment < drafts[b].first_moment;
    }
    return drafts[a].item < drafts[b].item;
  });
  return order;
}

void ScheduleLoads(const Trace& trace, const PlannerOptions& options, const Problem& problem,
                   bool unlimited_space, std::vector<ResidencyDraft>& drafts) {
  const IdealClock clock(trace);
  const std::vector<std::uint32_t> order = LoadOrder(drafts);
  const std::vector<double> latest = LatestStarts(trace, problem, clock, drafts, order);
  FreeBytes free_bytes(FreeBytesForGaps(problem));
  if (!unlimited_space) {
    for (const ResidencyDraft& draft : drafts) {
      const std::int64_t bytes = problem.items[draft.item].extent_bytes;
      const std::uint32_t bridged = draft.permanent ? draft.num_uses : draft.num_uses - 1;
      for (std::uint32_t j = 0; j < bridged; ++j) {
        const Gap& gap = problem.gaps[GapAfter(problem, draft, j)];
        free_bytes.Add(gap.first, gap.last, -bytes);
      }
    }
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    ResidencyDraft& draft = drafts[order[i]];
    const std::int64_t bytes = problem.items[draft.item].extent_bytes;
    const std::int64_t wanted =
        std::min(draft.first_moment, clock.LastStartedBy(latest[i] - options.slack_seconds));
    const Earliest earliest = EarliestIssue(options, problem, draft, wanted);
    draft.begin = earliest.moment;
    draft.limit = earliest.cause;
    if (unlimited_space) continue;
    const std::int64_t full = free_bytes.LastBelow(draft.begin, draft.first_moment - 1, bytes);
    if (full >= draft.begin) {
      draft.begin = full + 1;
      draft.limit = StallCause::kSpace;
    }
    free_bytes.Add(draft.begin, draft.first_moment - 1, -bytes);
  }
}

namespace {

// A shorter wait is rounding, not a stall.
constexpr double kLeastStallSeconds = 1e-9;

// The most iterations to run while the time of an iteration still changes. Only transfers over the
// boundary can make iterations differ.
constexpr int kMaxIterations = 4;
// Two iterations that differ by a smaller fraction take the same time: their sums round
// differently.
constexpr double kSameTime = 1e-9;

// The discrete events of one iteration, and their execution on the link model.
class StepSimulation {
 public:
  StepSimulation(const Trace& trace, const Problem& problem,
                 const std::vector<ResidencyDraft>& drafts);

  // Runs one iteration; its waits are in stalls().
  void RunIteration();
  double now() const { return now_; }
  const std::vector<Stall>& stalls() const { return stalls_; }

 private:
  using DraftIndices = std::vector<std::uint32_t>;
  using Direction = LinkSimulation::Direction;

  void Send(Direction direction, const DraftIndices& drafts);
  void WaitFor(Direction direction, const DraftIndices& drafts, std::size_t moment);

  const Trace& trace_;
  const Problem& problem_;
  const std::vector<ResidencyDraft>& drafts_;
  LinkSimulation link_;
  std::vector<DraftIndices> issued_, due_, drained_, promised_;  // by moment; promised_ also at N
  std::vector<std::size_t> sent_[2];  // per draft, one more than its last transfer; 0: none yet
  double now_ = 0;
  std::vector<Stall> stalls_;
};

StepSimulation::StepSimulation(const Trace& trace, const Problem& problem,
                               const std::vector<ResidencyDraft>& drafts)
    : trace_(trace),
      problem_(problem),
      drafts_(drafts),
      link_(trace.link),
      issued_(trace.moments.size()),
      due_(trace.moments.size()),
      drained_(trace.moments.size()),
      promised_(trace.moments.size() + 1) {
  for (std::vector<std::size_t>& sent : sent_) sent.assign(drafts.size(), 0);
  const std::int64_t n = problem.num_moments;
  for (const std::uint32_t i : LoadOrder(drafts)) {
    const ResidencyDraft& draft = drafts[i];
    issued_[static_cast<std::size_t>((draft.begin + n) % n)].push_back(i);
    due_[static_cast<std::size_t>(draft.first_moment)].push_back(i);
    const Item& item = problem.items[draft.item];
    const std::size_t last = (draft.first_use + draft.num_uses - 1) % item.uses.size();
    if (!item.uses[last].invalidates || item.gradient_bytes == 0) continue;
    drained_[static_cast<std::size_t>(draft.last_moment % n)].push_back(i);
    // Counted from the iteration of the last use, as in ItemUse::free_moment.
    const std::int64_t end = draft.end - draft.last_moment / n * n;
    promised_[static_cast<std::size_t>(end > n ? end - n : end)].push_back(i);
  }
}

void StepSimulation::Send(Direction direction, const DraftIndices& drafts) {
  for (const std::uint32_t i : drafts) {
    const Item& item = problem_.items[drafts_[i].item];
    sent_[direction][i] =
        1 + link_.Send(direction, direction == LinkSimulation::kUp ? item.transfer_bytes
                                                                   : item.gradient_bytes);
  }
}

void StepSimulation::WaitFor(Direction direction, const DraftIndices& drafts, std::size_t moment) {
  double done = now_;
  const std::uint32_t* latest = nullptr;
  for (const std::uint32_t& i : drafts) {
    if (sent_[direction][i] == 0) continue;
    const double at = link_.Finish(direction, sent_[direction][i] - 1);
    if (at <= done) continue;
    done = at;
    latest = &i;
  }
  if (latest == nullptr) return;
  const ResidencyDraft& draft = drafts_[*latest];
  if (done - now_ > kLeastStallSeconds) {
    const bool drains = direction == LinkSimulation::kDown;
    stalls_.push_back({.moment = static_cast<Moment>(moment),
                       .seconds = done - now_,
                       .cause = drains ? StallCause::kDrain : draft.limit,
                       .chunk = problem_.items[draft.item].chunk});
  }
  now_ = done;
}

void StepSimulation::RunIteration() {
  stalls_.clear();
  for (std::size_t t = 0; t < issued_.size(); ++t) {
    WaitFor(LinkSimulation::kDown, promised_[t], t);
    Send(LinkSimulation::kUp, issued_[t]);
    WaitFor(LinkSimulation::kUp, due_[t], t);
    now_ += trace_.moments[t].compute_seconds;
    link_.AdvanceTo(now_);
    Send(LinkSimulation::kDown, drained_[t]);
  }
  WaitFor(LinkSimulation::kDown, promised_.back(), issued_.size());
}

}  // namespace

StepPrediction PredictStep(const Trace& trace, const Problem& problem,
                           const std::vector<ResidencyDraft>& drafts) {
  StepSimulation simulation(trace, problem, drafts);
  double step = 0;
  double start = 0;
  int iterations = 0;
  for (bool settled = false; iterations < kMaxIterations && !settled; ++iterations) {
    const double before = step;
    simulation.RunIteration();
    step = simulation.now() - start;
    start = simulation.now();
    settled = iterations > 0 && std::abs(step - before) <= kSameTime * step;
  }
  return {.step_seconds = step, .iterations = iterations, .stalls = simulation.stalls()};
}

}  // namespace geminid::planner
