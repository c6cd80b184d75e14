#include "daemon/planner/demand/cache_candidate.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "daemon/planner/timeline/timeline.h"

namespace geminid::planner {
namespace {

// The most iterations that wait for a state that repeats, and then the most that agree on one.
constexpr int kMaxIterations = 8;
// Comparing two drafts is this many times cheaper than other operations.
constexpr std::int64_t kPairsPerOperation = 16;

using State = DemandCache::State;

// Runs until the last iteration ends with all items with which it began. It may end with more.
bool Settle(DemandCache& cache, std::int64_t work_limit) {
  State state;
  for (int i = 0; i < kMaxIterations; ++i) {
    if (!cache.RunIteration(state, work_limit)) return false;
    if (cache.end() == state) return true;
    state = cache.end();
  }
  for (int i = 0; i < kMaxIterations; ++i) {
    if (!cache.RunIteration(state, work_limit)) return false;
    State end = cache.end();
    std::sort(end.begin(), end.end());
    State agreed;
    std::copy_if(state.begin(), state.end(), std::back_inserter(agreed), [&](const auto& placed) {
      return std::binary_search(end.begin(), end.end(), placed);
    });
    if (agreed.size() == state.size()) return true;
    state = std::move(agreed);
  }
  return cache.RunIteration({}, work_limit);
}

CacheCandidate CandidateOf(const Problem& problem, const DemandCache& cache) {
  const std::int64_t n = problem.num_moments;
  CacheCandidate candidate;
  candidate.retained.assign(problem.gaps.size(), 0);
  for (const Item& item : problem.items) {
    for (std::size_t k = 0; k < item.uses.size(); ++k) {
      const std::size_t gap = item.first_gap + k;
      const std::size_t next = item.first_gap + (k + 1) % item.uses.size();
      candidate.retained[gap] = problem.gaps[gap].valued && !cache.is_loaded(next);
    }
  }
  candidate.drafts = BuildDrafts(problem, candidate.retained);
  for (ResidencyDraft& draft : candidate.drafts) {
    draft.offset_bytes = cache.offset_bytes(problem.items[draft.item].first_gap + draft.first_use);
    if (!draft.permanent) draft.end = std::min(draft.end, (draft.last_moment / n + 1) * n);
  }
  return candidate;
}

}  // namespace

std::optional<CacheCandidate> RunOnDemand(const Trace& trace, const Problem& problem,
                                          const CacheRule& rule, std::int64_t work_limit,
                                          std::int64_t& work) {
  DemandCache cache(trace, problem, rule);
  const bool settled = Settle(cache, work_limit - work);
  work += cache.work();
  if (!settled) return std::nullopt;
  return CandidateOf(problem, cache);
}

void LoadAheadInPlace(const Trace& trace, const PlannerOptions& options, const Problem& problem,
                      std::vector<ResidencyDraft>& drafts, std::int64_t& work) {
  const std::int64_t n = problem.num_moments;
  std::vector<ResidencyDraft> wanted = drafts;
  ScheduleLoads(trace, options, problem, /*unlimited_space=*/false, wanted);
  work += static_cast<std::int64_t>(drafts.size() * drafts.size()) / kPairsPerOperation;
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    ResidencyDraft& draft = drafts[i];
    if (draft.permanent) continue;
    const std::int64_t top = draft.offset_bytes + problem.items[draft.item].extent_bytes;
    std::int64_t begin = wanted[i].begin;
    for (std::int64_t t = draft.first_moment - 1; t >= begin; --t) {
      if (problem.capacity_bytes[static_cast<std::size_t>((t + n) % n)] < top) begin = t + 1;
    }
    for (const ResidencyDraft& other : drafts) {
      const std::int64_t other_top = other.offset_bytes + problem.items[other.item].extent_bytes;
      const bool apart = other_top <= draft.offset_bytes || top <= other.offset_bytes;
      if (apart && other.item != draft.item) continue;
      for (const std::int64_t end : {other.end - 2 * n, other.end - n, other.end}) {
        if (end <= draft.first_moment) begin = std::max(begin, end);
      }
    }
    draft.begin = begin;
    draft.limit = begin > wanted[i].begin ? StallCause::kSpace : wanted[i].limit;
  }
}

}  // namespace geminid::planner
