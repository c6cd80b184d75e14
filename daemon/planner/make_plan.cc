#include "daemon/planner/make_plan.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/planner/bound/byte_bound.h"
#include "daemon/planner/bound/step_bound.h"
#include "daemon/planner/demand/demand_cache.h"
#include "daemon/planner/placement/assign_offsets.h"
#include "daemon/planner/placement/extend_drains.h"
#include "daemon/planner/problem/problem.h"
#include "daemon/planner/retention/residency_draft.h"
#include "daemon/planner/retention/retention.h"
#include "daemon/planner/timeline/timeline.h"

namespace geminid::planner {
namespace {

// A candidate that moves more bytes must be faster by this part of the step: a prediction is no
// better than that, and the link may have other users.
constexpr double kGainWorthMoreBytes = 1e-3;

// Candidates are built until so many operations were spent, each a few dozen nanoseconds, so that
// 20,000 uses take less than a second whatever their order. Counted, not timed: the same plan
// everywhere. Deciding what to keep, scheduling and predicting cost some operations per gap.
constexpr std::int64_t kWorkLimit = 5'000'000;
constexpr std::int64_t kWorkPerGap = 15;
// Variants of placing the same choice are tried within this part of it: other choices gain more.
constexpr std::int64_t kWorkForVariants = kWorkLimit / 5;
// A cache that is simulated is given up after that.
constexpr std::int64_t kWorkOnDemand = kWorkLimit / 40;

struct Candidate {
  std::vector<ResidencyDraft> drafts;
  std::uint64_t h2d_bytes = 0;
  std::uint64_t split_bytes = 0;
  StepPrediction prediction;
};

bool StallsForSpace(const Candidate& candidate) {
  const std::vector<Stall>& stalls = candidate.prediction.stalls;
  return std::any_of(stalls.begin(), stalls.end(),
                     [](const Stall& stall) { return stall.cause == StallCause::kSpace; });
}

// The capacity as it would be if it only fell towards its minimum and rose after it. What is chosen
// below it can be placed without splits (assign_offsets.h).
std::vector<std::int64_t> MonotoneCapacity(const std::vector<std::int64_t>& capacity) {
  std::vector<std::int64_t> from_start = capacity;
  std::vector<std::int64_t> from_end = capacity;
  for (std::size_t t = 1; t < capacity.size(); ++t) {
    from_start[t] = std::min(from_start[t], from_start[t - 1]);
    const std::size_t back = capacity.size() - 1 - t;
    from_end[back] = std::min(from_end[back], from_end[back + 1]);
  }
  for (std::size_t t = 0; t < capacity.size(); ++t) {
    from_start[t] = std::max(from_start[t], from_end[t]);
  }
  return from_start;
}

// Gradients leave between two moments.
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

// Builds candidates from what they keep.
class Candidates {
 public:
  Candidates(const Trace& trace, const PlannerOptions& options, const Problem& problem,
             const Plan& bounds)
      : trace_(trace),
        options_(options),
        problem_(problem),
        without_drains_(WithoutDrains(problem)),
        least_bytes_(bounds.lower_bound_bytes),
        least_step_seconds_(bounds.step_lower_bound_seconds) {}

  // Returns false, and does nothing, if this cannot be better than the best so far; the more bytes,
  // the less it can.
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

  // Keeps what fits beside a reserve, if the budget is not spent.
  bool TryReserve(const std::vector<std::int64_t>& capacity_bytes, std::int64_t reserve_bytes) {
    if (IsSpent()) return false;
    work_ += kWorkPerGap * static_cast<std::int64_t>(problem_.gaps.size());
    return Try(
        ChooseRetention(problem_, FreeBytesForGaps(problem_, capacity_bytes, reserve_bytes)));
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

  // What a cache that follows the rule does: with its places, as it is and loaded ahead, and with
  // other places. For the least time also what it does if gradients leave at once.
  void TryOnDemand(const DemandRule& rule) {
    TryOnDemand(problem_, rule);
    if (options_.objective == Objective::kStepTime) TryOnDemand(without_drains_, rule);
  }

  const Candidate& last() const { return candidates_.back(); }

  // Whether a few more candidates will spend the budget.
  bool IsLarge() const { return work_ >= kWorkLimit / 8; }

  // Whether the last candidate would gain from more free space.
  bool LacksSpace() const {
    return last().split_bytes > 0 ||
           (options_.objective == Objective::kStepTime && StallsForSpace(last()));
  }

  // The fewest bytes; or of those that are as fast as the fastest, the fewest bytes. The first of
  // equals.
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

  // Placing only adds bytes, and no step is shorter than the bound.
  bool CanWin(std::uint64_t least_bytes) const {
    return std::none_of(candidates_.begin(), candidates_.end(), [&](const Candidate& candidate) {
      return candidate.h2d_bytes <= least_bytes &&
             (options_.objective == Objective::kBytes ||
              candidate.prediction.step_seconds <= least_step_seconds_ * (1 + kGainWorthMoreBytes));
    });
  }

  void TryOnDemand(const Problem& problem, const DemandRule& rule) {
    if (IsSpent() || !CanWin(least_bytes_)) return;
    const std::optional<DemandResult> result =
        RunOnDemand(trace_, problem, rule, work_ + kWorkOnDemand, work_);
    work_ += kWorkPerGap * static_cast<std::int64_t>(problem.gaps.size());
    if (!result.has_value() || !CanWin(LoadBytes(problem, result->retained))) return;
    std::vector<ResidencyDraft> ahead = result->drafts;  // the same bytes, waited for less
    LoadAheadInPlace(trace_, options_, problem, ahead, work_);
    AddPlaced(std::move(ahead));
    AddPlaced(result->drafts);
    if (&problem == &problem_) Try(result->retained);  // beside drains it need not fit
  }

  // The bounds hold for the drains that were asked for: what is below them has cut these short.
  void AddPlaced(std::vector<ResidencyDraft> drafts) {
    ExtendDrains(options_, problem_, drafts);
    Candidate candidate;
    candidate.h2d_bytes = LoadBytes(problem_, drafts);
    candidate.drafts = std::move(drafts);
    Add(std::move(candidate));
    if (last().h2d_bytes < least_bytes_ || last().prediction.step_seconds < least_step_seconds_) {
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
  std::int64_t work_ = 0;
  std::vector<Candidate> candidates_;
};

// Keeping as much as fits leaves no space to load ahead, so that loads are waited for, and little
// to arrange unequal chunks in, so that drafts are split. Holding back room for one, two, four, ...
// chunks of mean size (one, four, sixteen if the budget is short) buys overlap with bytes, and
// sometimes saves bytes. Ends when neither trouble is left.
void TryReserves(const Problem& problem, Candidates& candidates) {
  std::int64_t total = 0;
  for (const Item& item : problem.items) total += item.extent_bytes;
  const std::int64_t mean = total / static_cast<std::int64_t>(problem.items.size());
  const std::vector<std::int64_t> free_bytes = FreeBytesForGaps(problem, problem.capacity_bytes, 0);
  const std::int64_t most = *std::max_element(free_bytes.begin(), free_bytes.end());
  const std::int64_t factor = candidates.IsLarge() ? 4 : 2;
  for (std::int64_t reserve = mean; reserve < most; reserve *= factor) {
    if (!candidates.TryReserve(problem.capacity_bytes, reserve) || !candidates.LacksSpace()) return;
  }
}

// Where chunks are unequal, or copies stay valid over the boundary, a cache may be better.
void TryDemandRules(const Problem& problem, Candidates& candidates) {
  using Leaves = DemandRule::Leaves;
  for (const int power : {1, 2, 4, 0}) {
    candidates.TryOnDemand({.leaves = Leaves::kCheapestWindow, .power = power});
  }
  candidates.TryOnDemand({.leaves = Leaves::kLeastRecent});
  candidates.TryOnDemand({.leaves = Leaves::kLastNeeded});
  candidates.TryOnDemand({.leaves = Leaves::kLeastRecent, .drops_after_use = true});
  for (const Pins pins : {Pins::kAllThatFit, Pins::kUntilOneDoesNot}) {
    const std::vector<bool> pinned = PinInOrder(problem, pins);
    candidates.TryOnDemand(
        {.leaves = Leaves::kLeastRecent, .pinned = pinned, .drops_after_use = true});
    candidates.TryOnDemand({.leaves = Leaves::kCheapestWindow, .pinned = pinned});
  }
}

void PlanAuto(const PlannerOptions& options, const Problem& problem,
              std::uint64_t lower_bound_bytes, Candidates& candidates) {
  candidates.TryReserve(problem.capacity_bytes, 0);
  const Candidate& full = candidates.last();
  const bool least_bytes = full.h2d_bytes == lower_bound_bytes;
  const bool done = options.objective == Objective::kBytes
                        ? least_bytes
                        : full.prediction.stalls.empty() && full.split_bytes == 0;
  if (done) return;
  const bool full_split = full.split_bytes > 0;
  const bool lacks_space = candidates.LacksSpace();
  if (full_split) candidates.TryReserve(MonotoneCapacity(problem.capacity_bytes), 0);
  if (lacks_space) TryReserves(problem, candidates);
  candidates.Try(RetainAdjacent(problem));
  TryDemandRules(problem, candidates);
}

Candidate Choose(const Trace& trace, const PlannerOptions& options, const Problem& problem,
                 const Plan& plan) {
  if (problem.items.empty()) {
    Candidate nothing;
    nothing.prediction = PredictStep(trace, problem, nothing.drafts);
    return nothing;
  }
  Candidates candidates(trace, options, problem, plan);
  if (plan.everything_fits) {
    candidates.TryApart();
  } else if (options.policy == Policy::kCpu) {
    candidates.Try(RetainAdjacent(problem));
  } else {
    PlanAuto(options, problem, plan.lower_bound_bytes, candidates);
  }
  return candidates.Best();
}

absl::Status DoesNotFit(const Trace& trace, std::int64_t total_bytes, std::int64_t least_bytes) {
  std::uint64_t largest_workspace = 0;
  for (const MomentTrace& moment : trace.moments) {
    largest_workspace = std::max(largest_workspace, moment.workspace_bytes);
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "placement policy device keeps all chunks on the device, ", total_bytes,
      " bytes, but beside the largest workspace of ", largest_workspace, " bytes the arena of ",
      trace.arena_bytes, " bytes leaves ", least_bytes, "; the smallest arena that would do is ",
      static_cast<std::uint64_t>(total_bytes) + largest_workspace,
      " bytes. Raise the memory cap, or use policy auto"));
}

void FillResidencies(const Problem& problem, const std::vector<ResidencyDraft>& drafts,
                     Plan& plan) {
  std::vector<std::uint32_t> order(drafts.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto key = [&](std::uint32_t i) {
    return std::make_tuple(drafts[i].begin, drafts[i].first_moment, drafts[i].item);
  };
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return key(a) < key(b); });
  for (const std::uint32_t i : order) {
    const ResidencyDraft& draft = drafts[i];
    plan.residencies.push_back({.chunk = problem.items[draft.item].chunk,
                                .device_offset = static_cast<std::uint64_t>(draft.offset_bytes),
                                .begin = draft.begin,
                                .first_use = draft.first_moment,
                                .last_use = draft.last_moment,
                                .end = draft.end,
                                .permanent = draft.permanent});
  }
  // By item, which is by first use of the iteration.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> resident;
  for (std::uint32_t i = 0; i < drafts.size(); ++i) {
    const ResidencyDraft& draft = drafts[i];
    if (draft.permanent || draft.begin < 0 || draft.last_moment >= problem.num_moments) {
      resident.emplace_back(draft.item, i);
    }
  }
  std::sort(resident.begin(), resident.end());
  for (const auto& [item, i] : resident) {
    plan.resident_at_start.push_back(
        {problem.items[item].chunk, static_cast<std::uint64_t>(drafts[i].offset_bytes)});
  }
}

void FillSteps(const Problem& problem, const std::vector<ResidencyDraft>& drafts, Plan& plan) {
  const std::int64_t n = problem.num_moments;
  plan.steps.resize(static_cast<std::size_t>(n));
  std::uint32_t rank = 0;
  for (const std::uint32_t i : LoadOrder(drafts)) {
    const ResidencyDraft& draft = drafts[i];
    const Item& item = problem.items[draft.item];
    plan.steps[static_cast<std::size_t>((draft.begin + n) % n)].loads.push_back(
        {.chunk = item.chunk,
         .device_offset = static_cast<std::uint64_t>(draft.offset_bytes),
         .deadline_moment = static_cast<Moment>(draft.first_moment),
         .order = rank++});
    const std::size_t last_use = (draft.first_use + draft.num_uses - 1) % item.uses.size();
    const std::int64_t end = draft.end - draft.last_moment / n * n;
    plan.steps[static_cast<std::size_t>(draft.last_moment % n)].drops.push_back(
        {.chunk = item.chunk,
         .becomes_gradient = item.uses[last_use].invalidates,
         .free_moment = static_cast<Moment>(end > n ? end - n : end)});
  }
  // Loads of the next iteration sort before those of this one by deadline, but are needed later.
  for (std::size_t t = 0; t < plan.steps.size(); ++t) {
    std::vector<Load>& loads = plan.steps[t].loads;
    std::stable_partition(loads.begin(), loads.end(),
                          [&](const Load& load) { return load.deadline_moment >= t; });
  }
}

std::uint64_t GradientBytes(const Problem& problem) {
  std::uint64_t bytes = 0;
  for (const Item& item : problem.items) {
    for (const ItemUse& use : item.uses) {
      if (use.invalidates) bytes += item.gradient_bytes;
    }
  }
  return bytes;
}

}  // namespace

absl::StatusOr<Plan> MakePlan(const Trace& trace, const PlannerOptions& options) {
  absl::StatusOr<Problem> problem_or = BuildProblem(trace, options);
  if (!problem_or.ok()) return problem_or.status();
  const Problem& problem = *problem_or;
  std::int64_t total_bytes = 0;
  for (const Item& item : problem.items) total_bytes += item.extent_bytes;
  const std::int64_t least_bytes =
      *std::min_element(problem.capacity_bytes.begin(), problem.capacity_bytes.end());
  const bool all_fit = total_bytes <= least_bytes;
  if (options.policy == Policy::kDevice && !all_fit) {
    return DoesNotFit(trace, total_bytes, least_bytes);
  }

  Plan plan;
  plan.options = options;
  plan.trace_hash = TraceHash(trace);
  plan.everything_fits = all_fit && options.policy != Policy::kCpu;
  plan.lower_bound_bytes = LowerBoundBytes(problem);
  const std::vector<double> earliest = EarliestStarts(trace, options, problem);
  plan.step_lower_bound_seconds =
      LeastStepSeconds(trace, problem, earliest, plan.lower_bound_bytes);
  const Candidate chosen = Choose(trace, options, problem, plan);
  FillResidencies(problem, chosen.drafts, plan);
  FillSteps(problem, chosen.drafts, plan);
  plan.h2d_bytes = chosen.h2d_bytes;
  plan.d2h_bytes = GradientBytes(problem);
  plan.split_bytes = chosen.split_bytes;
  for (const MomentTrace& moment : trace.moments) plan.compute_seconds += moment.compute_seconds;
  plan.predicted_step_seconds = chosen.prediction.step_seconds;
  plan.stalls = chosen.prediction.stalls;
  MarkUnavoidable(trace, earliest, plan.stalls);
  return plan;
}

}  // namespace geminid::planner
