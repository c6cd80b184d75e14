#include "daemon/planner/sharing/move_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace geminid::planner {
namespace {

using testing::ElementsAre;
using Rows = std::vector<std::optional<std::size_t>>;

constexpr Share kNode = {10, 10, 10};

// Rows of (memory, ranks): all memory and one rank, one of memory and all ranks, or one of both.
SharingJob Swapping(std::size_t row) {
  SharingJob job = {.rows = {{{9, 1, 0}, 1}, {{1, 9, 0}, 1}, {{1, 1, 0}, 1}}};
  job.row = row;
  return job;
}

TEST(OrderMoves, OfAJobThatShrinks_PutsItFirst) {
  const std::vector<SharingJob> jobs = {Swapping(2), Swapping(0)};
  const auto moves = OrderMoves(kNode, jobs, Rows{0, 2});
  ASSERT_TRUE(moves.has_value());
  EXPECT_THAT(*moves, ElementsAre(Move{1, 0, 2}, Move{0, 2, 0}));
}

TEST(OrderMoves, OfJobsThatSwap_HasTheLowerPriorityWaitBetween) {
  std::vector<SharingJob> jobs = {Swapping(0), Swapping(1)};
  jobs[0].priority = 1;
  const auto moves = OrderMoves(kNode, jobs, Rows{1, 0});
  ASSERT_TRUE(moves.has_value());
  EXPECT_THAT(*moves,
              ElementsAre(Move{1, 1, std::nullopt}, Move{0, 0, 1}, Move{1, std::nullopt, 0}));
}

TEST(OrderMoves, OfGuaranteedJobsThatSwap_FindsNoOrder) {
  std::vector<SharingJob> jobs = {Swapping(0), Swapping(1)};
  for (SharingJob& job : jobs) job.guarantee = {1, 1, 0};
  EXPECT_EQ(OrderMoves(kNode, jobs, Rows{1, 0}), std::nullopt);
}

TEST(OrderMoves, OfNoChange_IsEmpty) {
  const std::vector<SharingJob> jobs = {Swapping(0), Swapping(2)};
  EXPECT_TRUE(OrderMoves(kNode, jobs, Rows{0, 2})->empty());
}

}  // namespace
}  // namespace geminid::planner
