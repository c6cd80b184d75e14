#include "daemon/planner/sharing/foresight.h"

#include <gtest/gtest.h>

namespace geminid::planner {
namespace {

// A job with rates for none, half and all of the room.
Competitor Job(double half_rate, double seconds) {
  return {.rows = {{}, {{5, 5, 5}, half_rate, 0}, {{10, 10, 10}, 1, 1}}, .seconds = seconds};
}

SharingProblem Of(std::vector<Competitor> jobs, double move_seconds = 0) {
  return {.jobs = std::move(jobs), .room = {10, 10, 10}, .move_seconds = move_seconds};
}

TEST(Foresee, OneAfterTheOther_AddsTheirTimes) {
  const SharingProblem problem = Of({Job(0.5, 10), Job(0.5, 30)});
  const Future future = Foresee(problem, {2, kWaits}, {Rule::Kind::kShortest});
  EXPECT_DOUBLE_EQ(future.last_end, 40);
  EXPECT_DOUBLE_EQ(future.mean_end, 25);
}

// Both have half of the room at rate 0.8. The first ends at 12.5, and the other has 20 left for all
// of the room.
TEST(Foresee, BesideEachOther_GivesTheRestToTheOneThatIsLeft) {
  const SharingProblem problem = Of({Job(0.8, 10), Job(0.8, 30)});
  const Future future = Foresee(problem, {1, 1}, {Rule::Kind::kMarginal, 1});
  EXPECT_DOUBLE_EQ(future.last_end, 32.5);
  EXPECT_DOUBLE_EQ(future.mean_end, 22.5);
}

TEST(Foresee, OfARunningJobThatIsMoved_AddsThePause) {
  SharingProblem problem = Of({Job(0.8, 10), Job(0.8, 30)}, 4);
  problem.jobs[1].now = 1;  // moves once, when the first has ended
  const Future future = Foresee(problem, {1, 1}, {Rule::Kind::kMarginal, 1});
  EXPECT_DOUBLE_EQ(future.last_end, 36.5);
}

TEST(Foresee, OfAJobThatNothingIsLeftFor_NeverEnds) {
  SharingProblem problem = Of({Job(0.8, 10)});
  EXPECT_GT(Foresee(problem, {kWaits}, {}).last_end, 1e300);
}

// Half of the room gives 80 % of the rate, so both ends are earlier side by side than one after the
// other.
TEST(ChooseByForesight, OfJobsThatScaleBadly_PutsThemBesideEachOther) {
  EXPECT_EQ(ChooseByForesight(Of({Job(0.8, 20), Job(0.8, 20)}), 0), (RowChoice{1, 1}));
}

// One after the other, the first ends earlier and the last no later than side by side.
TEST(ChooseByForesight, OfJobsThatScale_PutsTheShortOneFirst) {
  EXPECT_EQ(ChooseByForesight(Of({Job(0.5, 30), Job(0.5, 10)}), 0), (RowChoice{kWaits, 2}));
}

TEST(ChooseByForesight, OfARunningJobWithLittleToGain_KeepsWhatItHas) {
  SharingProblem problem = Of({Job(0.97, 30)});
  problem.jobs[0].now = 1;
  EXPECT_EQ(ChooseByForesight(problem, 0.05), (RowChoice{1}));
  EXPECT_EQ(ChooseByForesight(problem, 0.01), (RowChoice{2}));
  problem.move_seconds = 1;  // more than any gain
  EXPECT_EQ(ChooseByForesight(problem, 0), (RowChoice{1}));
}

TEST(Choose, OfPinnedJobs_LeavesThemAndFillsTheRest) {
  SharingProblem problem = Of({Job(0.5, 30), Job(0.5, 10)});
  problem.jobs[0].now = 1;
  problem.jobs[0].pinned = true;
  for (const Rule& rule : kRules) {
    EXPECT_EQ(Choose(problem, rule, {30, 10}, PinRule::kHold), (RowChoice{1, 1}));
  }
}

TEST(Choose, OfAnyRule_NeverGoesBelowTheLeast) {
  SharingProblem problem = Of({Job(0.5, 30), Job(0.5, 10)});
  problem.jobs[0].least = 1;
  for (const Rule& rule : kRules) {
    EXPECT_GE(Choose(problem, rule, {30, 10}, PinRule::kPassed)[0], 1u);
    // A job that has ended gets nothing.
    EXPECT_EQ(Choose(problem, rule, {0, 10}, PinRule::kPassed), (RowChoice{kWaits, 2}));
  }
}

}  // namespace
}  // namespace geminid::planner
