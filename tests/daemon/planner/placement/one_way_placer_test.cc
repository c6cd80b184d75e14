#include "daemon/planner/placement/one_way_placer.h"

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

#include "daemon/planner/make_plan.h"
#include "daemon/planner/placement/cheapest_window.h"
#include "daemon/planner/placement/free_space.h"
#include "daemon/planner/placement/placement_attempt.h"
#include "daemon/planner/timeline/timeline.h"
#include "gtest/gtest.h"
#include "tests/daemon/planner/traces.h"

namespace geminid::planner {
namespace {

constexpr std::int64_t kSpaceBytes = 400;

// Disjoint extents, some with gaps between them. Every fifth is fixed.
std::vector<OccupiedExtent> RandomExtents(std::mt19937_64& random) {
  std::vector<OccupiedExtent> taken;
  std::int64_t at = static_cast<std::int64_t>(Draw(random, 0, 5));
  while (at < kSpaceBytes) {
    const auto size = static_cast<std::int64_t>(Draw(random, 1, 9));
    taken.push_back({.begin = at,
                     .end = at + size,
                     .owner = static_cast<std::uint32_t>(taken.size()),
                     .fixed = Draw(random, 0, 4) == 0,
                     .cost = {static_cast<std::int64_t>(Draw(random, 0, 3)),
                              static_cast<std::int64_t>(Draw(random, 0, 3))}});
    at += size + static_cast<std::int64_t>(Draw(random, 0, 3));
  }
  return taken;
}

TEST(CheapestWindow, AnyExtents_IsTheCheapestOfAllOffsets) {
  std::mt19937_64 random(51);
  int found = 0;
  for (int i = 0; i < 500; ++i) {
    const std::vector<OccupiedExtent> taken = RandomExtents(random);
    const auto size = static_cast<std::int64_t>(Draw(random, 1, 40));
    const auto floor = static_cast<std::int64_t>(Draw(random, 0, 20));
    const std::int64_t ceiling = kSpaceBytes - static_cast<std::int64_t>(Draw(random, 0, 20));
    std::optional<ClearCost> least;
    for (std::int64_t offset = floor; offset + size <= ceiling; ++offset) {
      ClearCost cost;
      bool fixed = false;
      for (const OccupiedExtent& extent : taken) {
        if (extent.end <= offset || extent.begin >= offset + size) continue;
        cost.reload_bytes += extent.cost.reload_bytes;
        cost.delayed_bytes += extent.cost.delayed_bytes;
        fixed = fixed || extent.fixed;
      }
      if (!fixed && (!least || cost < *least)) least = cost;
    }
    const WindowChoice choice = CheapestWindow(taken, size, floor, ceiling);
    ASSERT_EQ(choice.offset_bytes >= 0, least.has_value());
    if (!least) continue;
    ++found;
    ClearCost cost;
    for (std::size_t k = choice.first; k < choice.last; ++k) {
      ASSERT_FALSE(taken[k].fixed);
      cost.reload_bytes += taken[k].cost.reload_bytes;
      cost.delayed_bytes += taken[k].cost.delayed_bytes;
    }
    ASSERT_EQ(cost, *least);
  }
  EXPECT_GT(found, 100);
}

// A model of the same space with one flag per byte.
class Bytes {
 public:
  explicit Bytes(std::size_t size) : free_(size, true) {}
  void Set(std::int64_t offset, std::int64_t size, bool free) {
    std::fill_n(free_.begin() + offset, size, free);
  }
  std::int64_t Find(std::int64_t size, std::int64_t ceiling, FreeSpace::Prefer prefer,
                    const std::vector<FreeSpace::Obstacle>& obstacles) const {
    std::int64_t found = FreeSpace::kNowhere;
    for (std::int64_t offset = 0; offset + size <= ceiling; ++offset) {
      bool fits = std::all_of(free_.begin() + offset, free_.begin() + offset + size,
                              [](bool free) { return free; });
      for (const FreeSpace::Obstacle& obstacle : obstacles) {
        const bool apart = obstacle.end <= offset || obstacle.begin >= offset + size;
        fits = fits && (apart || obstacle.owner % 2 == 0);
      }
      if (!fits) continue;
      found = offset;
      if (prefer == FreeSpace::Prefer::kLowest) break;
    }
    return found;
  }

 private:
  std::vector<bool> free_;
};

TEST(FreeSpace, AnySequence_FindsWhatAFlagPerByteFinds) {
  std::mt19937_64 random(52);
  constexpr std::int64_t kBytes = 2000;
  FreeSpace space(kBytes);
  Bytes bytes(kBytes);
  const std::vector<FreeSpace::Obstacle> obstacles = {{100, 130, 1}, {300, 310, 2}, {900, 950, 3}};
  struct Extent {
    std::int64_t offset, size;
  };
  std::vector<Extent> taken;
  for (int i = 0; i < 6000; ++i) {
    if (!taken.empty() && Draw(random, 0, 99) < 46) {
      std::swap(taken[Draw(random, 0, taken.size() - 1)], taken.back());
      space.Give(taken.back().offset, taken.back().size);
      bytes.Set(taken.back().offset, taken.back().size, true);
      taken.pop_back();
      continue;
    }
    const auto size = static_cast<std::int64_t>(Draw(random, 1, 12));
    const auto ceiling = static_cast<std::int64_t>(Draw(random, 1, kBytes));
    const auto prefer =
        Draw(random, 0, 1) == 0 ? FreeSpace::Prefer::kHighest : FreeSpace::Prefer::kLowest;
    const std::int64_t offset =
        space.Find(size, ceiling, prefer, obstacles, [](std::uint32_t owner) { return owner % 2; });
    ASSERT_EQ(offset, bytes.Find(size, ceiling, prefer, obstacles)) << "step " << i;
    if (offset == FreeSpace::kNowhere) continue;
    space.Take(offset, size);
    bytes.Set(offset, size, false);
    taken.push_back({offset, size});
  }
}

// Whatever a sweep splits or delays, the placed drafts do not overlap, lie below the capacity, and
// cover each use once.
TEST(AttemptPlacement, AnyTrace_PlacesWithoutOverlapAndLosesNoUse) {
  std::mt19937_64 random(53);
  int split = 0;
  for (int i = 0; i < 600; ++i) {
    RandomShape shape{.num_chunks = static_cast<int>(Draw(random, 2, 14)),
                      .num_moments = static_cast<int>(Draw(random, 2, 30)),
                      .max_size_bytes = Draw(random, 1, 9),
                      .max_uses_per_moment = 3,
                      .capacity = static_cast<Capacity>(Draw(random, 0, 2)),
                      .invalidate = i % 2 == 0};
    const Trace trace = RandomTrace(shape, random);
    PlannerOptions options = TestOptions();
    options.weights_change_between_iterations = i % 3 == 0;
    options.drain_moments = 2;
    const absl::StatusOr<Problem> problem = BuildProblem(trace, options);
    ASSERT_TRUE(problem.ok()) << problem.status();
    if (problem->items.empty()) continue;
    const std::int64_t n = problem->num_moments;
    std::vector<ResidencyDraft> drafts =
        BuildDrafts(*problem, ChooseRetention(*problem, FreeBytesForGaps(*problem)));
    ScheduleLoads(trace, options, *problem, /*unlimited_space=*/false, drafts);
    const std::size_t before = drafts.size();
    std::int64_t work = 0;
    const auto cut = static_cast<std::int64_t>(Draw(random, 0, static_cast<std::uint64_t>(n - 1)));
    const std::vector<std::uint32_t> failed =
        AttemptPlacement(*problem, FreeSpace::Prefer::kHighest, cut, drafts, work);
    if (drafts.size() > before) ++split;
    std::size_t uses = 0;
    for (const ResidencyDraft& draft : drafts) uses += draft.num_uses;
    ASSERT_EQ(uses, problem->gaps.size());
    for (std::int64_t t = 0; t < n; ++t) {
      std::vector<std::uint8_t> taken(static_cast<std::size_t>(trace.arena_bytes), 0);
      for (std::uint32_t s = 0; s < drafts.size(); ++s) {
        if (std::binary_search(failed.begin(), failed.end(), s)) continue;
        const ResidencyDraft& draft = drafts[s];
        bool alive = draft.permanent;
        for (const std::int64_t at : {t - n, t, t + n}) {
          alive = alive || (draft.begin <= at && at < draft.end);
        }
        if (!alive) continue;
        const std::int64_t end = draft.offset_bytes + problem->items[draft.item].extent_bytes;
        ASSERT_LE(end, problem->capacity_bytes[static_cast<std::size_t>(t)]) << "instance " << i;
        for (std::int64_t byte = draft.offset_bytes; byte < end; ++byte) {
          ASSERT_EQ(taken[static_cast<std::size_t>(byte)]++, 0) << "instance " << i;
        }
      }
    }
  }
  EXPECT_GT(split, 20);
}

}  // namespace
}  // namespace geminid::planner
