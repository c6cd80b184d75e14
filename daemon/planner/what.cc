#include "daemon/planner/what.h"

#include <algorithm>
#include <cstddef>

#include "daemon/planner/farthest_first.h"
#include "daemon/planner/room.h"

namespace geminid::planner {
namespace {

// Iterations to unroll at most while looking for a state that repeats. Traces of real training
// repeat after one or two.
constexpr int kMaxIterations = 8;

Kept KeepCyclic(const Problem& problem, FarthestFirst& sweep) {
  std::vector<std::int64_t> state = sweep.held_bytes();
  std::vector<std::int64_t> previous;
  for (int i = 0; i < kMaxIterations; ++i) {
    sweep.RunIteration();
    previous = sweep.kept_bytes();
    if (sweep.held_bytes() == state) break;
    state = sweep.held_bytes();
  }
  sweep.RunIteration();
  // A gap over the boundary takes room in two iterations; it is sound to keep it if it survived
  // both the one before and the one after, the others as in the iteration between.
  Kept kept(problem.gaps.size());
  for (std::size_t g = 0; g < kept.size(); ++g) {
    kept[g] = previous[g] > 0 && (!problem.gaps[g].crosses_boundary || sweep.kept_bytes()[g] > 0);
  }
  return kept;
}

void TakeBack(const Problem& problem, const std::vector<std::int64_t>& room_bytes, Kept& kept) {
  Room room(room_bytes);
  struct Candidate {
    double value;  // bytes saved per byte and moment held
    std::size_t gap;
  };
  std::vector<Candidate> candidates;
  for (std::size_t g = 0; g < kept.size(); ++g) {
    const Gap& gap = problem.gaps[g];
    const Item& item = problem.items[gap.item];
    if (kept[g]) {
      room.Add(gap.first, gap.last, -item.extent_bytes);
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
    if (!room.Has(gap.first, gap.last, bytes)) continue;
    room.Add(gap.first, gap.last, -bytes);
    kept[candidate.gap] = 1;
  }
}

}  // namespace

std::vector<std::int64_t> RoomForGaps(const Problem& problem,
                                      const std::vector<std::int64_t>& capacity_bytes,
                                      std::int64_t reserve_bytes) {
  std::vector<std::int64_t> room(capacity_bytes.size());
  for (std::size_t t = 0; t < room.size(); ++t) {
    room[t] =
        std::max<std::int64_t>(0, capacity_bytes[t] - problem.required_bytes[t] - reserve_bytes);
  }
  return room;
}

Kept DecideKept(const Problem& problem, const std::vector<std::int64_t>& room_bytes) {
  const Kept takes_part = KeepAll(problem);
  FarthestFirst sweep(problem, room_bytes, takes_part, FarthestFirst::Grain::kWhole);
  Kept kept(problem.gaps.size());
  if (problem.cyclic) {
    kept = KeepCyclic(problem, sweep);
  } else {
    sweep.RunIteration();
    for (std::size_t g = 0; g < kept.size(); ++g) kept[g] = sweep.kept_bytes()[g] > 0;
  }
  TakeBack(problem, room_bytes, kept);
  return kept;
}

Kept KeepAdjacent(const Problem& problem) {
  Kept kept(problem.gaps.size());
  for (std::size_t g = 0; g < kept.size(); ++g) {
    const Gap& gap = problem.gaps[g];
    kept[g] = gap.valued && gap.last < gap.first;
  }
  return kept;
}

Kept KeepAll(const Problem& problem) {
  Kept kept(problem.gaps.size());
  for (std::size_t g = 0; g < kept.size(); ++g) kept[g] = problem.gaps[g].valued;
  return kept;
}

std::uint64_t LoadBytes(const Problem& problem, const Kept& kept) {
  std::uint64_t bytes = 0;
  for (std::size_t g = 0; g < kept.size(); ++g) {
    if (!kept[g]) bytes += problem.items[problem.gaps[g].item].transfer_bytes;
  }
  return bytes;
}

}  // namespace geminid::planner
