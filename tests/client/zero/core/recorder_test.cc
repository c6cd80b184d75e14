#include "client/zero/core/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace geminid::zero {
namespace {

using ::testing::ElementsAre;

TEST(Recorder, ForwardAndBackward_MarkTheUseThatInvalidates) {
  Recorder recorder;
  recorder.BeginMoment({1, 0, 1});
  recorder.NoteWorkspace(10);
  recorder.NoteWorkspace(30);
  recorder.NoteWorkspace(20);
  recorder.NoteCompute(0.5);
  recorder.BeginMoment({0});
  recorder.NoteReduced(0);
  const std::vector<Moment> moments = recorder.Moments();
  ASSERT_EQ(moments.size(), 2u);
  EXPECT_THAT(moments[0].uses, ElementsAre(Moment::Use{0, false}, Moment::Use{1, false}));
  EXPECT_EQ(moments[0].workspace_bytes, 30u);
  EXPECT_EQ(moments[0].compute_seconds, 0.5);
  EXPECT_THAT(moments[1].uses, ElementsAre(Moment::Use{0, true}));
}

TEST(Recorder, ChunkThatHoldsPartOfAGradient_IsUsedUntilItIsReduced) {
  Recorder recorder;
  recorder.BeginMoment({0});  // the head: the tied embedding's first gradient
  recorder.NoteGradient(0);
  recorder.BeginMoment({1});
  recorder.NoteGradient(1);
  recorder.NoteReduced(1);
  recorder.BeginMoment({0});
  recorder.NoteGradient(0);
  recorder.NoteReduced(0);
  const std::vector<Moment> moments = recorder.Moments();
  EXPECT_THAT(moments[1].uses, ElementsAre(Moment::Use{0, false}, Moment::Use{1, true}));
  EXPECT_THAT(moments[2].uses, ElementsAre(Moment::Use{0, true}));
}

TEST(Recorder, FirstUseOrder_IsTheOrderOfTheForwardPass) {
  Recorder recorder;
  recorder.BeginMoment({2});
  recorder.BeginMoment({0, 1});
  recorder.BeginMoment({2});
  EXPECT_THAT(recorder.FirstUseOrder(), ElementsAre(2, 0, 1));
}

}  // namespace
}  // namespace geminid::zero
