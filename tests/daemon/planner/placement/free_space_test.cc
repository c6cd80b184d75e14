#include "daemon/planner/placement/free_space.h"

#include <vector>

#include "gtest/gtest.h"

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

}  // namespace
}  // namespace geminid::planner
