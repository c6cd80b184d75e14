#include "client/zero/core/plan_backoff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace geminid::zero {
namespace {

using ::testing::ElementsAre;

// Which of so many micro-batches, none of which followed a plan, wanted one.
std::vector<int> Wanted(PlanBackoff* backoff, bool left_plan, int micro_batches) {
  std::vector<int> wanted;
  for (int i = 0; i < micro_batches; ++i) {
    backoff->NotFollowed(left_plan, /*empty=*/false);
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
  backoff.NotFollowed(/*left_plan=*/false, /*empty=*/true);
  EXPECT_FALSE(backoff.wants_plan());
  backoff.NotFollowed(/*left_plan=*/false, /*empty=*/false);
  backoff.GivenUp();
  EXPECT_FALSE(backoff.wants_plan());
}

}  // namespace
}  // namespace geminid::zero
