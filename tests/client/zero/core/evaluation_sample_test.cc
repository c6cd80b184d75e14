#include "client/zero/core/evaluation_sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace geminid::zero {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

void AddRound(EvaluationSample* sample) {
  for (uint32_t chunk : {4, 7, 4, 9}) sample->Add({chunk}, {});
}

TEST(EvaluationSample, OperatorsThatHaveNotComeRound_AreNoSampleBeforeTheEnd) {
  EvaluationSample sample;
  AddRound(&sample);
  sample.Add({4}, {});
  EXPECT_THAT(sample.Take(/*end=*/false), IsEmpty());
  EXPECT_EQ(sample.Take(/*end=*/true).size(), 5u);
}

// The operator that appears twice in a round does not end the round.
TEST(EvaluationSample, SecondRound_IsTheSample) {
  EvaluationSample sample;
  AddRound(&sample);
  AddRound(&sample);
  sample.recorder().NoteWorkspace(30);
  const std::vector<Moment> moments = sample.Take(/*end=*/false);
  ASSERT_EQ(moments.size(), 4u);
  EXPECT_THAT(moments[1].uses, ElementsAre(Moment::Use{7, false}));
  EXPECT_EQ(moments[3].workspace_bytes, 30u);
}

TEST(EvaluationSample, EachSample_NeedsTwiceAsManyRoundsAsTheOneBefore) {
  EvaluationSample sample;
  std::vector<int> rounds_of_samples;
  for (int round = 0; round < 10; ++round) {
    AddRound(&sample);
    AddRound(&sample);
    if (!sample.Take(/*end=*/false).empty()) rounds_of_samples.push_back(round);
  }
  EXPECT_THAT(rounds_of_samples, ElementsAre(0, 2, 5));
}

TEST(EvaluationSample, OperatorsThatNeverComeRound_AreForgottenAfterSome) {
  EvaluationSample sample;
  for (uint32_t operators = 0; operators < 4097; ++operators) sample.Add({operators}, {});
  EXPECT_THAT(sample.Take(/*end=*/true), IsEmpty());
}

}  // namespace
}  // namespace geminid::zero
