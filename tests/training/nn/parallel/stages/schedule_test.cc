#include "training/nn/parallel/stages/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "training/nn/parallel/stages/timeline.h"

namespace geminid::collectives {
namespace {

using testing::HasSubstr;

constexpr PipelineCosts kCosts = {.forward = 3, .backward_input = 4, .backward_weight = 2};

PipelineTimeline Timed(const PipelineShape& shape, const PipelineCosts& costs) {
  const auto schedule = MakePipelineSchedule(shape, costs);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  const auto timeline = RunSchedule(shape, *schedule, costs);
  EXPECT_TRUE(timeline.ok()) << timeline.status() << " with " << shape.stages << " stages and "
                             << shape.micro_batches << " micro-batches";
  return timeline.value_or(PipelineTimeline{});
}

double Backward(const PipelineCosts& costs) { return costs.backward_input + costs.backward_weight; }

TEST(OneForwardOneBackward, EndAndMemory_AreTheClosedForms) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (const int micro_batches : {1, 2, 3, 5, 8, 16, 33}) {
      const PipelineShape shape = {PipelineKind::k1F1B, stages, micro_batches};
      const PipelineTimeline timeline = Timed(shape, kCosts);
      EXPECT_EQ(timeline.end, (micro_batches + stages - 1) * (kCosts.forward + Backward(kCosts)));
      EXPECT_NEAR(timeline.bubble(), (stages - 1.0) / (micro_batches + stages - 1), 1e-12);
      for (int stage = 0; stage < stages; ++stage) {
        EXPECT_EQ(timeline.most_in_flight[static_cast<size_t>(stage)],
                  std::min(stages - stage, micro_batches));
        EXPECT_EQ(MostInFlight(shape, stage), std::min(stages - stage, micro_batches));
      }
    }
  }
}

// Each part takes 1/v of the time, and so does the bubble.
TEST(Interleaved, EndAndMemory_AreTheClosedForms) {
  for (int stages = 1; stages <= 6; ++stages) {
    for (const int parts : {2, 3, 4}) {
      for (const int rounds : {1, 2, 5}) {
        const PipelineShape shape = {PipelineKind::kInterleaved, stages, rounds * stages, parts};
        const PipelineTimeline timeline = Timed(shape, kCosts);
        EXPECT_EQ(timeline.end,
                  (rounds * stages * parts + stages - 1) * (kCosts.forward + Backward(kCosts)));
        for (int stage = 0; stage < stages; ++stage) {
          EXPECT_EQ(MostInFlight(shape, stage), timeline.most_in_flight[static_cast<size_t>(stage)])
              << stage << " of " << stages << " with " << parts << " parts";
        }
      }
    }
  }
}

TEST(ZeroBubble, EndsAndHoldsNoMoreThanOneForwardOneBackward) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (const int micro_batches : {1, 2, 3, 7, 8, 16, 24}) {
      const PipelineShape shape = {PipelineKind::kZeroBubbleV, stages, micro_batches, 2};
      const PipelineTimeline timeline = Timed(shape, kCosts);
      for (const int held : timeline.most_in_flight) EXPECT_LE(held, MostInFlight(shape, 0));
      EXPECT_LE(MostInFlight(shape, 0), 2 * stages);
    }
  }
}

// A part of ZBV is half a stage of 1F1B, so it takes half the time.
TEST(ZeroBubble, BubbleIsBelowOneForwardOneBackward) {
  for (int stages = 2; stages <= 8; ++stages) {
    for (const int micro_batches : {stages, 2 * stages, 4 * stages}) {
      for (const PipelineCosts& half :
           {PipelineCosts{1, 1, 1}, PipelineCosts{1.5, 2, 1}, PipelineCosts{1, 1, 1, 0.1}}) {
        const PipelineCosts whole = {2 * half.forward, 2 * half.backward_input,
                                     2 * half.backward_weight, half.transfer};
        const double ours =
            Timed({PipelineKind::kZeroBubbleV, stages, micro_batches, 2}, half).bubble();
        const double theirs = Timed({PipelineKind::k1F1B, stages, micro_batches}, whole).bubble();
        EXPECT_LT(ours, theirs) << stages << " stages, " << micro_batches << " micro-batches";
      }
    }
  }
}

// The executor's order: a gradient of the input is sent before those of the weights are computed.
PipelineSchedule WithHalves(PipelineSchedule schedule) {
  for (auto& actions : schedule) {
    std::vector<PipelineAction> halves;
    for (PipelineAction action : actions) {
      const bool both = action.work == PipelineWork::kBackward;
      if (both) action.work = PipelineWork::kBackwardInput;
      halves.push_back(action);
      action.work = PipelineWork::kBackwardWeight;
      if (both) halves.push_back(action);
    }
    actions = std::move(halves);
  }
  return schedule;
}

// On the way back to the first stage, only the halves for the inputs count.
TEST(OneForwardOneBackward, BackwardsInHalves_EndIsTheClosedForm) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (const int micro_batches : {1, 2, 3, 5, 8, 16, 33}) {
      const PipelineShape shape = {PipelineKind::k1F1B, stages, micro_batches};
      const auto timeline =
          RunSchedule(shape, WithHalves(MakePipelineSchedule(shape).value()), kCosts);
      ASSERT_TRUE(timeline.ok()) << timeline.status();
      EXPECT_EQ(timeline->end, micro_batches * (kCosts.forward + Backward(kCosts)) +
                                   (stages - 1) * (kCosts.forward + kCosts.backward_input));
    }
  }
}

// A transfer takes a quarter of a whole stage's forward.
TEST(ZeroBubble, SlowLinks_EndsBeforeOneForwardOneBackward) {
  for (int stages = 2; stages <= 8; ++stages) {
    for (const int micro_batches : {stages, 2 * stages, 4 * stages}) {
      const PipelineShape shape = {PipelineKind::k1F1B, stages, micro_batches};
      const auto theirs =
          RunSchedule(shape, WithHalves(MakePipelineSchedule(shape).value()), {2, 2, 2, 0.5});
      ASSERT_TRUE(theirs.ok()) << theirs.status();
      EXPECT_LT(Timed({PipelineKind::kZeroBubbleV, stages, micro_batches, 2}, {1, 1, 1, 0.5}).end,
                theirs->end)
          << stages << " stages, " << micro_batches << " micro-batches";
    }
  }
}

// With equal times and enough micro-batches, only the way to the last stage and back is idle time.
TEST(ZeroBubble, EqualTimes_LeaveAlmostNoBubble) {
  for (int stages = 2; stages <= 8; ++stages) {
    const double bubble =
        Timed({PipelineKind::kZeroBubbleV, stages, 8 * stages, 2}, {1, 1, 1}).bubble();
    EXPECT_LT(bubble, 0.05) << stages;
  }
}

TEST(Pipeline, PlacesAndPositions_AreEachOthersInverse) {
  for (const PipelineShape& shape : {PipelineShape{PipelineKind::k1F1B, 4, 1, 1},
                                     PipelineShape{PipelineKind::kInterleaved, 3, 3, 4},
                                     PipelineShape{PipelineKind::kZeroBubbleV, 5, 1, 2}}) {
    for (int position = 0; position < shape.stages * shape.parts; ++position) {
      const PipelinePlace place = PlaceAt(shape, position);
      EXPECT_EQ(PositionOf(shape, place.stage, place.part), position);
    }
  }
  EXPECT_EQ(PlaceAt({PipelineKind::kZeroBubbleV, 4, 1, 2}, 7), (PipelinePlace{0, 1}));
}

TEST(Pipeline, ShapesThatCannotBe_AreRefused) {
  const auto refusal = [](const PipelineShape& shape) {
    return std::string(MakePipelineSchedule(shape).status().message());
  };
  EXPECT_THAT(refusal({PipelineKind::k1F1B, 0, 1}), HasSubstr("at least 1"));
  EXPECT_THAT(refusal({PipelineKind::k1F1B, 2, 1, 2}),
              HasSubstr("1f1b takes 1 part per stage, not 2"));
  EXPECT_THAT(refusal({PipelineKind::kZeroBubbleV, 2, 1, 1}), HasSubstr("zbv takes 2 parts"));
  EXPECT_THAT(refusal({PipelineKind::kInterleaved, 4, 4, 1}), HasSubstr("2 parts or more"));
  EXPECT_THAT(refusal({PipelineKind::kInterleaved, 4, 6, 2}),
              HasSubstr("take a multiple of the stages, such as 4"));
}

std::string Fault(const PipelineSchedule& schedule) {
  const PipelineShape shape = {PipelineKind::k1F1B, 2, 1};
  return std::string(RunSchedule(shape, schedule, {}).status().message());
}

TEST(Timeline, SchedulesThatAreNone_AreRefused) {
  const PipelineAction forward{PipelineWork::kForward}, backward{PipelineWork::kBackward};
  EXPECT_THAT(Fault({{backward, forward}, {forward, backward}}),
              HasSubstr("stage 0, micro-batch 0, part 0: the backward waits for ever"));
  EXPECT_THAT(Fault({{forward}, {forward, backward}}), HasSubstr("are left out"));
  EXPECT_THAT(Fault({{forward, forward}, {}}), HasSubstr("is there twice"));
  EXPECT_THAT(Fault({{forward, backward}, {{PipelineWork::kForward, 1, 0}}}),
              HasSubstr("no such part"));
  EXPECT_THAT(Fault({{forward, backward}}), HasSubstr("1 stages for a pipeline of 2"));
  EXPECT_EQ(Fault({{forward, backward}, {forward, backward}}), "");
}

}  // namespace
}  // namespace geminid::collectives
