#include "daemon/planner/retention/farthest_first.h"

#include <algorithm>

namespace geminid::planner {

FarthestFirst::FarthestFirst(const Problem& problem, const std::vector<std::int64_t>& free_bytes,
                             const std::vector<std::uint8_t>& takes_part, EvictionUnit unit)
    : problem_(problem),
      free_bytes_(free_bytes),
      takes_part_(takes_part),
      unit_(unit),
      starting_(static_cast<std::size_t>(problem.num_moments)),
      ending_(static_cast<std::size_t>(problem.num_moments)),
      held_bytes_(problem.gaps.size(), 0),
      kept_bytes_(problem.gaps.size(), 0) {
  const std::int64_t n = problem.num_moments;
  for (std::size_t g = 0; g < problem.gaps.size(); ++g) {
    if (!takes_part_[g]) continue;
    const Gap& gap = problem.gaps[g];
    const auto index = static_cast<std::uint32_t>(g);
    if (gap.last < gap.first) {
      without_interior_.push_back(index);
      continue;
    }
    starting_[static_cast<std::size_t>(gap.first % n)].push_back(index);
    ending_[static_cast<std::size_t>(gap.last % n)].push_back(index);
    if (gap.first < n && gap.last >= n) Start(g, gap.last - n);
  }
}

void FarthestFirst::RunIteration() {
  lost_bytes_ = 0;
  for (const std::uint32_t g : without_interior_) kept_bytes_[g] = ExtentBytes(g);
  for (std::size_t t = 0; t < starting_.size(); ++t, ++now_) {
    for (const std::uint32_t g : starting_[t]) {
      Start(g, now_ + problem_.gaps[g].last - problem_.gaps[g].first);
    }
    Shrink(free_bytes_[t]);
    for (const std::uint32_t g : ending_[t]) Finish(g);
  }
}

void FarthestFirst::Start(std::size_t gap, std::int64_t end) {
  held_bytes_[gap] = ExtentBytes(gap);
  occupied_bytes_ += held_bytes_[gap];
  by_end_.emplace(end, static_cast<std::uint32_t>(gap));
}

void FarthestFirst::Shrink(std::int64_t free_bytes) {
  // Gaps that ended earlier are still queued, but behind all running gaps: the top gap is held.
  while (occupied_bytes_ > free_bytes) {
    const std::uint32_t g = by_end_.top().second;
    const std::int64_t missing = occupied_bytes_ - free_bytes;
    const std::int64_t given =
        unit_ == EvictionUnit::kBytes ? std::min(held_bytes_[g], missing) : held_bytes_[g];
    held_bytes_[g] -= given;
    occupied_bytes_ -= given;
    if (held_bytes_[g] == 0) by_end_.pop();
  }
}

void FarthestFirst::Finish(std::size_t gap) {
  kept_bytes_[gap] = held_bytes_[gap];
  lost_bytes_ += ExtentBytes(gap) - held_bytes_[gap];
  occupied_bytes_ -= held_bytes_[gap];
  held_bytes_[gap] = 0;
}

}  // namespace geminid::planner
