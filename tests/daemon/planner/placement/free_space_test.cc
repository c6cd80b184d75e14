#include "daemon/planner/placement/free_space.h"

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/daemon/planner/traces.h"

namespace geminid::planner {
namespace {

using Prefer = FreeSpace::Prefer;
using Obstacles = std::vector<FreeSpace::Obstacle>;

constexpr auto kAllInTheWay = [](std::uint32_t) { return true; };

std::int64_t Find(const FreeSpace& space, std::int64_t size, std::int64_t ceiling, Prefer prefer,
                  const Obstacles& obstacles = {}) {
  return space.Find(size, ceiling, prefer, obstacles, kAllInTheWay);
}

TEST(FreeSpace, ExactFitAtTheCeiling_IsFound) {
  FreeSpace space(100);
  EXPECT_EQ(Find(space, 40, 40, Prefer::kLowest), 0);
  EXPECT_EQ(Find(space, 40, 40, Prefer::kHighest), 0);
  EXPECT_EQ(Find(space, 41, 40, Prefer::kLowest), FreeSpace::kNowhere);
  EXPECT_EQ(Find(space, 41, 40, Prefer::kHighest), FreeSpace::kNowhere);
  space.Take(0, 30);
  EXPECT_EQ(Find(space, 10, 40, Prefer::kLowest), 30);
  EXPECT_EQ(Find(space, 10, 40, Prefer::kHighest), 30);
  EXPECT_EQ(Find(space, 70, 100, Prefer::kLowest), 30);
  EXPECT_EQ(Find(space, 11, 40, Prefer::kLowest), FreeSpace::kNowhere);
}

TEST(FreeSpace, ObstaclesInTheWay_AreAvoidedToTheByte) {
  const FreeSpace space(100);
  const Obstacles obstacles = {{.begin = 20, .end = 30, .owner = 0},
                               {.begin = 60, .end = 70, .owner = 1}};
  EXPECT_EQ(Find(space, 20, 100, Prefer::kLowest, obstacles), 0);
  EXPECT_EQ(Find(space, 30, 100, Prefer::kLowest, obstacles), 30);
  EXPECT_EQ(Find(space, 30, 100, Prefer::kHighest, obstacles), 70);
  EXPECT_EQ(Find(space, 30, 69, Prefer::kHighest, obstacles), 30);
  EXPECT_EQ(Find(space, 31, 100, Prefer::kHighest, obstacles), FreeSpace::kNowhere);
  const auto only_first = [](std::uint32_t owner) { return owner == 0; };
  EXPECT_EQ(space.Find(70, 100, Prefer::kLowest, obstacles, only_first), 30);
  EXPECT_EQ(space.Find(70, 100, Prefer::kHighest, obstacles, only_first), 30);
}

// Which of kBytes bytes are taken.
using Bytes = std::vector<bool>;
constexpr std::int64_t kBytes = 600;

bool IsFree(const Bytes& taken, std::int64_t begin, std::int64_t size, const Obstacles& obstacles) {
  for (std::int64_t at = begin; at < begin + size; ++at) {
    if (taken[static_cast<std::size_t>(at)]) return false;
  }
  for (const FreeSpace::Obstacle& obstacle : obstacles) {
    if (obstacle.owner % 2 == 0 && obstacle.begin < begin + size && begin < obstacle.end) {
      return false;
    }
  }
  return true;
}

std::int64_t Expected(const Bytes& taken, std::int64_t size, std::int64_t ceiling, Prefer prefer,
                      const Obstacles& obstacles) {
  std::int64_t best = FreeSpace::kNowhere;
  for (std::int64_t at = 0; at + size <= std::min(ceiling, kBytes); ++at) {
    if (!IsFree(taken, at, size, obstacles)) continue;
    best = at;
    if (prefer == Prefer::kLowest) break;
  }
  return best;
}

Obstacles RandomObstacles(std::mt19937_64& random) {
  Obstacles obstacles;
  std::int64_t at = 0;
  for (std::uint32_t owner = 0; at < kBytes; ++owner) {
    const auto begin = at + static_cast<std::int64_t>(Draw(random, 0, 60));
    const auto end = begin + static_cast<std::int64_t>(Draw(random, 1, 20));
    obstacles.push_back({.begin = begin, .end = end, .owner = owner});
    at = end;
  }
  return obstacles;
}

// Enough small ranges that they fill several buckets.
TEST(FreeSpace, RandomUse_EqualsAByteMap) {
  std::mt19937_64 random(21);
  FreeSpace space(kBytes);
  Bytes taken(kBytes, false);
  std::vector<std::pair<std::int64_t, std::int64_t>> extents;
  const auto mark = [&taken](std::int64_t begin, std::int64_t size, bool value) {
    std::fill_n(taken.begin() + begin, size, value);
  };
  for (int step = 0; step < 6000; ++step) {
    const auto size = static_cast<std::int64_t>(Draw(random, 1, step < 3000 ? 2 : 12));
    const auto ceiling = static_cast<std::int64_t>(Draw(random, 1, kBytes));
    const Obstacles obstacles = step % 3 == 0 ? RandomObstacles(random) : Obstacles{};
    const auto prefer = step % 2 == 0 ? Prefer::kHighest : Prefer::kLowest;
    const std::int64_t found = space.Find(size, ceiling, prefer, obstacles,
                                          [](std::uint32_t owner) { return owner % 2 == 0; });
    ASSERT_EQ(found, Expected(taken, size, ceiling, prefer, obstacles)) << "step " << step;
    if (found != FreeSpace::kNowhere && Draw(random, 0, 9) < 6) {
      space.Take(found, size);
      mark(found, size, true);
      extents.emplace_back(found, size);
    } else if (!extents.empty()) {
      std::swap(extents[Draw(random, 0, extents.size() - 1)], extents.back());
      const auto [begin, bytes] = extents.back();
      extents.pop_back();
      space.Give(begin, bytes);
      mark(begin, bytes, false);
    }
  }
}

}  // namespace
}  // namespace geminid::planner
