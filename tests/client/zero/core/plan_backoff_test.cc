#include "client/zero/core/plan_backoff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <optional>
#include <vector>

namespace geminid::zero {
namespace {

using ::testing::ElementsAre;

// The micro-batches that wanted a plan, if none of them followed one. The operators of each are
// new.
std::vector<int> Wanted(PlanBackoff* backoff, bool left_plan, int micro_batches) {
  static uint64_t operators = 0;
  std::vector<int> wanted;
  for (int i = 0; i < micro_batches; ++i) {
    backoff->NotFollowed(left_plan, ++operators);
    if (backoff->wants_plan()) wanted.push_back(i);
  }
  return wanted;
}

TEST(PlanBackoff, MicroBatchesWithoutAPlan_AllWantOne) {
  PlanBackoff backoff;
  EXPECT_THAT(Wanted(&backoff, /*left_plan=*/false, 3), ElementsAre(0, 1, 2));
}

TEST(PlanBackoff, EachPlanThatIsLeft_MakesTheNextOneTwiceAsRare) {
  PlanBackoff backoff;
  EXPECT_THAT(Wanted(&backoff, /*left_plan=*/true, 20), ElementsAre(0, 2, 6, 14));
  backoff.WaitLonger();  // 32, of which 5 have passed
  EXPECT_THAT(Wanted(&backoff, /*left_plan=*/true, 40), ElementsAre(26));
}

TEST(PlanBackoff, PlansThatAreFollowedEightTimes_AreForgiven) {
  PlanBackoff backoff;
  (void)Wanted(&backoff, /*left_plan=*/true, 7);
  for (int i = 0; i < 8; ++i) backoff.Followed();
  EXPECT_FALSE(backoff.wants_plan());
  EXPECT_THAT(Wanted(&backoff, /*left_plan=*/false, 2), ElementsAre(0, 1));
}

TEST(PlanBackoff, EmptyOrCancelledMicroBatch_WantsNoPlan) {
  PlanBackoff backoff;
  backoff.NotFollowed(/*left_plan=*/false, std::nullopt);
  EXPECT_FALSE(backoff.wants_plan());
  backoff.NotFollowed(/*left_plan=*/false, 1);
  backoff.GivenUp();
  EXPECT_FALSE(backoff.wants_plan());
}

// A job whose plan fits only the operators that it was made from.
struct Job {
  PlanBackoff backoff;
  std::optional<uint64_t> planned;

  // Runs micro-batches with these operators in turn. Returns the number of plans made.
  int Run(std::initializer_list<uint64_t> operators, int rounds) {
    int plans = 0;
    for (int round = 0; round < rounds; ++round) {
      for (const uint64_t of : operators) {
        if (planned == of) {
          backoff.Followed();
          continue;
        }
        backoff.NotFollowed(planned.has_value(), of);
        if (!backoff.wants_plan()) continue;
        planned = of;
        ++plans;
      }
    }
    return plans;
  }
};

TEST(PlanBackoff, MicroBatchesThatAlternate_GetAPlanEachOnce) {
  EXPECT_EQ(Job().Run({1, 2}, 1000), 2);
  EXPECT_EQ(Job().Run({1, 2, 3, 4, 5, 6}, 1000), 6);
}

TEST(PlanBackoff, JobThatSettlesOnOperatorsOfBefore_GetsTheirPlanAgain) {
  Job job;
  EXPECT_EQ(job.Run({1, 2}, 8), 2);
  EXPECT_EQ(job.planned, 2u);
  EXPECT_EQ(job.Run({1}, 100), 1);
  EXPECT_EQ(job.planned, 1u);
}

}  // namespace
}  // namespace geminid::zero
