#include "daemon/planner/candidates.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

#include "daemon/planner/demand/cache_candidate.h"
#include "daemon/planner/placement/assign_offsets.h"
#include "daemon/planner/placement/extend_drains.h"
#include "daemon/planner/retention/retention.h"

namespace geminid::planner {
namespace {

// A candidate that moves more bytes must be faster by this fraction of the step: predictions are no
// more exact, and the link may have other users.
constexpr double kGainWorthMoreBytes = 1e-3;

// Building candidates ends after this many operations of a few dozen nanoseconds each: about a
// second for 20,000 uses. Operations are counted, not timed, so that every machine makes the same
// plan. Choosing, scheduling and predicting cost kWorkPerGap operations per gap.
constexpr std::int64_t kWorkLimit = 5'000'000;
constexpr std::int64_t kWorkPerGap = 15;
// Placing one choice in several ways may spend this much: other choices gain more.
constexpr std::int64_t kWorkForVariants = kWorkLimit / 5;
// The simulation of a cache is given up after this many operations.
constexpr std::int64_t kWorkOnDemand = kWorkLimit / 40;

bool StallsForSpace(const Candidate& candidate) {
  const std::vector<Stall>& stalls = candidate.prediction.stalls;
  return std::any_of(stalls.begin(), stalls.end(),
                     [](const Stall& stall) { return stall.cause == StallCause::kSpace; });
}

// The same problem with gradients that leave at once, between two moments.
Problem WithoutDrains(Problem problem) {
  std::fill(problem.required_bytes.begin(), problem.required_bytes.end(), 0);
  for (Item& item : problem.items) {
    for (ItemUse& use : item.uses) {
      use.free_moment = use.moment + 1;
      problem.required_bytes[static_cast<std::size_t>(use.moment)] += item.extent_bytes;
    }
  }
  return problem;
}

// Builds and collects candidates. Each starts from the set of gaps that it retains.
class Candidates {
 public:
  Candidates(const Trace& trace, const PlannerOptions& options, const Problem& problem,
             const Plan& bounds)
      : trace_(trace),
        options_(options),
        problem_(problem),
        without_drains_(WithoutDrains(problem)),
        least_bytes_(bounds.lower_bound_bytes),
        least_step_seconds_(bounds.step_lower_bound_seconds),
        work_(problem.drain_steps) {}

  // Adds the candidate that retains `retained`. Returns false and does nothing if that candidate
  // cannot be better than the best so far.
  bool Try(const Retention& retained) {
    const std::uint64_t least_bytes = LoadBytes(problem_, retained);
    if (!CanWin(least_bytes)) return false;
    Candidate candidate;
    candidate.drafts = BuildDrafts(problem_, retained);
    ScheduleLoads(trace_, options_, problem_, /*unlimited_space=*/false, candidate.drafts);
    AssignOffsets(problem_, kWorkForVariants, candidate.drafts, work_);
    ExtendDrains(options_, problem_, candidate.drafts);
    work_ += kWorkPerGap * static_cast<std::int64_t>(problem_.gaps.size());
    candidate.h2d_bytes = LoadBytes(problem_, candidate.drafts);
    candidate.split_bytes = candidate.h2d_bytes - least_bytes;
    Add(std::move(candidate));
    return true;
  }

  // Retains what fits beside a reserve. Returns false if the budget is spent or Try() does.
  bool TryReserve(std::int64_t reserve_bytes) {
    if (IsSpent()) return false;
    work_ += kWorkPerGap * static_cast<std::int64_t>(problem_.gaps.size());
    return Try(ChooseRetention(problem_, FreeBytesForGaps(problem_, reserve_bytes)));
  }

  void TryApart() {
    Candidate candidate;
    candidate.drafts = BuildDrafts(problem_, RetainAll(problem_));
    ScheduleLoads(trace_, options_, problem_, /*unlimited_space=*/true, candidate.drafts);
    AssignSeparateOffsets(problem_, candidate.drafts);
    ExtendDrains(options_, problem_, candidate.drafts);
    candidate.h2d_bytes = LoadBytes(problem_, candidate.drafts);
    Add(std::move(candidate));
  }

  // Adds the candidate of a cache that follows the rule: the cache's offsets, with loads issued
  // ahead. For Objective::kStepTime, also adds the candidate of the same cache if gradients left at
  // once.
  void TryOnDemand(const CacheRule& rule, Stage stage) {
    if (problem_.without.Has(stage)) return;
    TryOnDemandIn(problem_, rule);
    if (options_.objective == Objective::kBytes) return;
    if (!problem_.without.Has(Stage::kCachesWithoutDrains)) TryOnDemandIn(without_drains_, rule);
  }

  const Candidate& last() const { return candidates_.back(); }

  // Whether a few more candidates will spend the budget.
  bool IsLarge() const { return work_ >= kWorkLimit / 8; }

  // Whether the last candidate would gain from more free space.
  bool LacksSpace() const {
    return last().split_bytes > 0 ||
           (options_.objective == Objective::kStepTime && StallsForSpace(last()));
  }

  // kBytes: the candidate with the fewest bytes. kStepTime: the one with the fewest bytes among
  // those as fast as the fastest. The first of equals.
  const Candidate& Best() const {
    double most_seconds = std::numeric_limits<double>::infinity();
    if (options_.objective == Objective::kStepTime) {
      for (const Candidate& candidate : candidates_) {
        most_seconds =
            std::min(most_seconds, candidate.prediction.step_seconds * (1 + kGainWorthMoreBytes));
      }
    }
    const Candidate* best = nullptr;
    const auto key = [](const Candidate& candidate) {
      return std::make_pair(candidate.h2d_bytes, candidate.prediction.step_seconds);
    };
    for (const Candidate& candidate : candidates_) {
      if (candidate.prediction.step_seconds > most_seconds) continue;
      if (best == nullptr || key(candidate) < key(*best)) best = &candidate;
    }
    return *best;
  }

 private:
  bool IsSpent() const { return !candidates_.empty() && work_ >= kWorkLimit; }

  // Placement only adds bytes, and no step is shorter than the bound.
  bool CanWin(std::uint64_t least_bytes) const {
    return std::none_of(candidates_.begin(), candidates_.end(), [&](const Candidate& candidate) {
      return candidate.h2d_bytes <= least_bytes &&
             (options_.objective == Objective::kBytes ||
              candidate.prediction.step_seconds <= least_step_seconds_ * (1 + kGainWorthMoreBytes));
    });
  }

  void TryOnDemandIn(const Problem& problem, const CacheRule& rule) {
    if (IsSpent() || !CanWin(least_bytes_)) return;
    std::optional<CacheCandidate> cached =
        RunOnDemand(trace_, problem, rule, work_ + kWorkOnDemand, work_);
    work_ += kWorkPerGap * static_cast<std::int64_t>(problem.gaps.size());
    if (!cached.has_value() || !CanWin(LoadBytes(problem, cached->retained))) return;
    if (!problem_.without.Has(Stage::kCachesLoadAhead)) {
      LoadAheadInPlace(trace_, options_, problem, cached->drafts, work_);
    }
    AddPlaced(std::move(cached->drafts));
  }

  // The bounds hold for the drains that the options ask for. A candidate below a bound has
  // shortened drains, so it is removed.
  void AddPlaced(std::vector<ResidencyDraft> drafts) {
    ExtendDrains(options_, problem_, drafts);
    Candidate candidate;
    candidate.h2d_bytes = LoadBytes(problem_, drafts);
    candidate.drafts = std::move(drafts);
    Add(std::move(candidate));
    if (last().h2d_bytes < least_bytes_ ||
        last().prediction.step_seconds < least_step_seconds_ * (1 - kRounding)) {
      candidates_.pop_back();
    }
  }

  void Add(Candidate candidate) {
    candidate.prediction = PredictStep(trace_, problem_, candidate.drafts);
    candidates_.push_back(std::move(candidate));
  }

  const Trace& trace_;
  const PlannerOptions& options_;
  const Problem& problem_;
  const Problem without_drains_;
  const std::uint64_t least_bytes_;
  const double least_step_seconds_;
  std::int64_t work_;
  std::vector<Candidate> candidates_;
};

// Retaining as much as fits leaves no space to load ahead, so moments wait for loads. It also
// leaves little space to arrange unequal chunks, so drafts are split. A reserve of one, two, four,
// ... chunks of mean size (one, four, sixteen if the budget is short) overlaps more for more bytes.
// Sometimes it even saves bytes. Ends when the last candidate lacks no space.
void TryReserves(const Problem& problem, Candidates& candidates) {
  std::int64_t total = 0;
  for (const Item& item : problem.items) total += item.extent_bytes;
  const std::int64_t mean = total / static_cast<std::int64_t>(problem.items.size());
  const std::vector<std::int64_t> free_bytes = FreeBytesForGaps(problem);
  const std::int64_t most = *std::max_element(free_bytes.begin(), free_bytes.end());
  const std::int64_t factor = candidates.IsLarge() ? 4 : 2;
  for (std::int64_t reserve = mean; reserve < most; reserve *= factor) {
    if (!candidates.TryReserve(reserve) || !candidates.LacksSpace()) return;
  }
}

// If chunks have unequal sizes, or copies stay valid over the boundary, a cache may be better.
void TryCaches(const Problem& problem, Candidates& candidates) {
  using EvictionRule = CacheRule::EvictionRule;
  candidates.TryOnDemand({.eviction = EvictionRule::kCheapestWindow}, Stage::kCheapestWindow);
  candidates.TryOnDemand({.eviction = EvictionRule::kCheapestReload}, Stage::kCheapestReload);
  candidates.TryOnDemand({.eviction = EvictionRule::kLastNeeded}, Stage::kLastNeeded);
  candidates.TryOnDemand({.pinned = PinAllThatFit(problem), .drops_after_use = true},
                         Stage::kPinned);
}

void PlanAuto(const PlannerOptions& options, const Problem& problem,
              std::uint64_t lower_bound_bytes, Candidates& candidates) {
  candidates.TryReserve(0);
  const Candidate& full = candidates.last();
  const bool least_bytes = full.h2d_bytes == lower_bound_bytes;
  const bool done = options.objective == Objective::kBytes
                        ? least_bytes
                        : full.prediction.stalls.empty() && full.split_bytes == 0;
  if (done) return;
  if (candidates.LacksSpace() && !problem.without.Has(Stage::kReserves)) {
    TryReserves(problem, candidates);
  }
  if (!problem.without.Has(Stage::kNothingRetained)) candidates.Try(RetainAdjacent(problem));
  TryCaches(problem, candidates);
}

}  // namespace

Candidate BestCandidate(const Trace& trace, const PlannerOptions& options, const Problem& problem,
                        const Plan& bounds) {
  if (problem.items.empty()) {
    Candidate nothing;
    nothing.prediction = PredictStep(trace, problem, nothing.drafts);
    return nothing;
  }
  Candidates candidates(trace, options, problem, bounds);
  if (bounds.everything_fits) {
    candidates.TryApart();
  } else if (options.policy == Policy::kCpu) {
    candidates.Try(RetainAdjacent(problem));
  } else {
    PlanAuto(options, problem, bounds.lower_bound_bytes, candidates);
  }
  return candidates.Best();
}

}  // namespace geminid::planner
