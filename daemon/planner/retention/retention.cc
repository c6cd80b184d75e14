#include "daemon/planner/retention/retention.h"

#include <algorithm>
#include <cstddef>

#include "daemon/planner/problem/free_bytes.h"
#include "daemon/planner/retention/farthest_first.h"

namespace geminid::planner {
namespace {

// The most iterations to unroll in search of a state that repeats. Real training repeats after one
// or two.
constexpr int kMaxIterations = 8;

Retention RetainCyclic(const Problem& problem, FarthestFirst& eviction) {
  std::vector<std::int64_t> state = eviction.held_bytes();
  std::vector<std::int64_t> previous;
  for (int i = 0; i < kMaxIterations; ++i) {
    eviction.RunIteration();
    previous = eviction.kept_bytes();
    if (eviction.held_bytes() == state) break;
    state = eviction.held_bytes();
  }
  eviction.RunIteration();
  // A gap over the boundary occupies space in two iterations. It may be retained if it survived the
  // previous iteration and the next. The other gaps are as in the iteration between.
  Retention retained(problem.gaps.size());
  for (std::size_t g = 0; g < retained.size(); ++g) {
    retained[g] =
        previous[g] > 0 && (!problem.gaps[g].crosses_boundary || eviction.kept_bytes()[g] > 0);
  }
  return retained;
}

void TakeBack(const Problem& problem, const std::vector<std::int64_t>& free_bytes,
              Retention& retained) {
  FreeBytes remaining(free_bytes);
  struct Candidate {
    double value;  // bytes saved, per byte and moment of space
    std::size_t gap;
  };
  std::vector<Candidate> candidates;
  for (std::size_t g = 0; g < retained.size(); ++g) {
    const Gap& gap = problem.gaps[g];
    const Item& item = problem.items[gap.item];
    if (retained[g]) {
      remaining.Add(gap.first, gap.last, -item.extent_bytes);
    } else if (gap.valued && item.transfer_bytes > 0) {
      const double held =
          static_cast<double>(item.extent_bytes) * static_cast<double>(gap.last - gap.first + 1);
      candidates.push_back({static_cast<double>(item.transfer_bytes) / held, g});
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.value > b.value; });
  for (const Candidate& candidate : candidates) {
    const Gap& gap = problem.gaps[candidate.gap];
    const std::int64_t bytes = problem.items[gap.item].extent_bytes;
    if (!remaining.Has(gap.first, gap.last, bytes)) continue;
    remaining.Add(gap.first, gap.last, -bytes);
    retained[candidate.gap] = 1;
  }
}

}  // namespace

std::vector<std::int64_t> FreeBytesForGaps(const Problem& problem, std::int64_t reserve_bytes) {
  std::vector<std::int64_t> remaining(problem.capacity_bytes);
  for (std::size_t t = 0; t < remaining.size(); ++t) {
    remaining[t] =
        std::max<std::int64_t>(0, remaining[t] - problem.required_bytes[t] - reserve_bytes);
  }
  return remaining;
}

Retention ChooseRetention(const Problem& problem, const std::vector<std::int64_t>& free_bytes) {
  const Retention takes_part = RetainAll(problem);
  FarthestFirst eviction(problem, free_bytes, takes_part, FarthestFirst::EvictionUnit::kWhole);
  Retention retained(problem.gaps.size());
  if (problem.cyclic) {
    retained = RetainCyclic(problem, eviction);
  } else {
    eviction.RunIteration();
    for (std::size_t g = 0; g < retained.size(); ++g) retained[g] = eviction.kept_bytes()[g] > 0;
  }
  if (!problem.without.Has(Stage::kTakeBack)) TakeBack(problem, free_bytes, retained);
  return retained;
}

Retention RetainAdjacent(const Problem& problem) {
  Retention retained(problem.gaps.size());
  for (std::size_t g = 0; g < retained.size(); ++g) {
    const Gap& gap = problem.gaps[g];
    retained[g] = gap.valued && gap.last < gap.first;
  }
  return retained;
}

Retention RetainAll(const Problem& problem) {
  Retention retained(problem.gaps.size());
  for (std::size_t g = 0; g < retained.size(); ++g) retained[g] = problem.gaps[g].valued;
  return retained;
}

std::uint64_t LoadBytes(const Problem& problem, const Retention& retained) {
  std::uint64_t bytes = 0;
  for (std::size_t g = 0; g < retained.size(); ++g) {
    if (!retained[g]) bytes += problem.items[problem.gaps[g].item].transfer_bytes;
  }
  return bytes;
}

}  // namespace geminid::planner
