#include "daemon/planner/make_plan.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "daemon/planner/bound/byte_bound.h"
#include "daemon/planner/bound/step_bound.h"
#include "daemon/planner/candidates.h"
#include "daemon/planner/problem/problem.h"
#include "daemon/planner/retention/residency_draft.h"
#include "daemon/planner/timeline/timeline.h"

namespace geminid::planner {
namespace {

absl::Status DoesNotFit(const Trace& trace, std::int64_t total_bytes, std::int64_t least_bytes) {
  std::uint64_t largest_workspace = 0;
  for (const MomentTrace& moment : trace.moments) {
    largest_workspace = std::max(largest_workspace, moment.workspace_bytes);
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "placement policy device keeps all chunks on the device, ",
      base::FormatBytes(static_cast<std::uint64_t>(total_bytes)),
      ", but beside the largest workspace of ", base::FormatBytes(largest_workspace),
      " the arena of ", base::FormatBytes(trace.arena_bytes), " leaves ",
      base::FormatBytes(static_cast<std::uint64_t>(std::max<std::int64_t>(least_bytes, 0))),
      "; the smallest arena that would do is ",
      base::FormatBytes(static_cast<std::uint64_t>(total_bytes) + largest_workspace),
      ". Raise the memory cap, or use policy auto"));
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
  // In the order of items, which is the order of their first use in the iteration.
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
  // By deadline, loads for the next iteration sort before loads for this one, but are needed later.
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

absl::StatusOr<Plan> MakePlan(const Trace& trace, const PlannerOptions& options,
                              const StageSet& without) {
  absl::StatusOr<Problem> problem_or = BuildProblem(trace, options);
  if (!problem_or.ok()) return problem_or.status();
  problem_or->without = without;
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
  const Candidate chosen = BestCandidate(trace, options, problem, plan);
  FillResidencies(problem, chosen.drafts, plan);
  FillSteps(problem, chosen.drafts, plan);
  plan.h2d_bytes = chosen.h2d_bytes;
  plan.d2h_bytes = GradientBytes(problem);
  plan.split_bytes = chosen.split_bytes;
  for (const MomentTrace& moment : trace.moments) plan.compute_seconds += moment.compute_seconds;
  plan.predicted_step_seconds = chosen.prediction.step_seconds;
  // Every plan respects the bound. The minimum hides that the two sums round differently.
  plan.step_lower_bound_seconds =
      std::min(plan.step_lower_bound_seconds, plan.predicted_step_seconds);
  plan.stalls = chosen.prediction.stalls;
  MarkUnavoidable(trace, earliest, plan.stalls);
  return plan;
}

}  // namespace geminid::planner
