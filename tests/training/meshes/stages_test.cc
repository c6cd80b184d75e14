#include "training/meshes/stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "training/nn/parallel/stages/schedule.h"
#include "training/nn/parallel/stages/timeline.h"

namespace geminid::parallel {
namespace {

// The best partition: the lowest cost of the dearest stage, then the most layers in the last stage.
struct Best {
  double dearest = std::numeric_limits<double>::infinity();
  std::uint64_t last = 0;
};
void TryAll(std::uint64_t left, int stages, double dearest, double output, Best* best) {
  if (stages == 1) {
    dearest = std::max(dearest, static_cast<double>(left) + output);
    if (dearest < best->dearest || (dearest == best->dearest && left > best->last)) {
      *best = {dearest, left};
    }
    return;
  }
  for (std::uint64_t count = 1; count + static_cast<std::uint64_t>(stages) - 1 <= left; ++count) {
    TryAll(left - count, stages - 1, std::max(dearest, static_cast<double>(count)), output, best);
  }
}

TEST(SplitLayers, OfEveryCut_HasTheCheapestDearestStage) {
  for (std::uint64_t layers = 1; layers <= 12; ++layers) {
    for (int stages = 1; stages <= static_cast<int>(layers) && stages <= 5; ++stages) {
      for (const double output : {0.0, 0.4, 1.0, 2.5, 20.0}) {
        Best best;
        TryAll(layers, stages, 0, output, &best);
        double dearest = 0;
        std::uint64_t next = 0;
        const auto ranges = SplitLayers(layers, output, stages);
        ASSERT_EQ(ranges.size(), static_cast<std::size_t>(stages));
        for (const forecast::ModelPart& range : ranges) {
          EXPECT_EQ(range.first_layer, next);
          EXPECT_GE(range.layers, 1u);
          EXPECT_EQ(range.embeds, &range == &ranges.front());
          EXPECT_EQ(range.outputs, &range == &ranges.back());
          next += range.layers;
          dearest =
              std::max(dearest, static_cast<double>(range.layers) + (range.outputs ? output : 0));
        }
        EXPECT_EQ(next, layers);
        EXPECT_DOUBLE_EQ(dearest, best.dearest) << layers << " over " << stages << ", " << output;
        EXPECT_EQ(ranges.back().layers, best.last)
            << layers << " over " << stages << ", " << output;
      }
    }
  }
}

TEST(StepOf, WithoutTransfers_IsTheClosedFormOf1F1B) {
  for (const int stages : {1, 2, 4, 8}) {
    for (const std::uint64_t micro_batches : {1, 3, 8, 32}) {
      const auto step = StepOf(stages, micro_batches, {.forward = 1.5, .backward = 2.5});
      ASSERT_TRUE(step.ok()) << step.status();
      const double slots = static_cast<double>(micro_batches) + stages - 1;
      EXPECT_NEAR(step->seconds, slots * 4, 1e-9);
      EXPECT_NEAR(step->bubble, (stages - 1) / slots, 1e-9);
    }
  }
}

TEST(StepOf, WithTransfers_IsLongerButForOneStage) {
  const PassSeconds pass = {.forward = 1, .backward = 2, .transfer = 0.5};
  EXPECT_DOUBLE_EQ(StepOf(1, 4, pass)->seconds, 12);
  // The first micro-batch crosses S - 1 boundaries, and the last gradient crosses them, too.
  EXPECT_GE(StepOf(4, 8, pass)->seconds, 33 + 2 * 3 * 0.5);
}

// Forwards and both halves take equally long. 1F1B idles (S - 1) times for a whole pass. With
// enough micro-batches, ZBV idles (S - 1) times for at most a part's forward.
TEST(StepInHalves, OfEqualHalves_HasNoMoreBubbleThanTheWayToTheLastStage) {
  const PassSeconds pass = {.forward = 2, .backward = 4, .weights = 2};
  for (const int stages : {2, 4, 8}) {
    const std::uint64_t micro_batches = 3 * static_cast<std::uint64_t>(stages);
    const collectives::PipelineShape shape = ShapeInHalves(stages, micro_batches);
    const auto schedule = collectives::MakePipelineSchedule(shape);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    const auto step = StepInHalves(shape, *schedule, pass);
    ASSERT_TRUE(step.ok()) << step.status();
    const double least = static_cast<double>(micro_batches) * 6 + (stages - 1) * 1.0;
    EXPECT_DOUBLE_EQ(LeastStepInHalves(stages, micro_batches, pass), least);
    EXPECT_GE(step->seconds, least - 1e-9);
    EXPECT_LE(step->seconds, least + 1);
    EXPECT_NEAR(step->bubble, 1 - static_cast<double>(micro_batches) * 6 / step->seconds, 1e-9);
    EXPECT_LT(step->seconds, StepOf(stages, micro_batches, pass)->seconds);
  }
}

TEST(InFlight, IsWhatTheTimelineOf1F1BHolds) {
  for (const int stages : {1, 2, 4, 8}) {
    for (const int micro_batches : {1, 3, 8, 20}) {
      const collectives::PipelineShape shape = {.stages = stages, .micro_batches = micro_batches};
      const auto schedule = collectives::MakePipelineSchedule(shape);
      ASSERT_TRUE(schedule.ok()) << schedule.status();
      const auto timeline = collectives::RunSchedule(shape, *schedule, {});
      ASSERT_TRUE(timeline.ok()) << timeline.status();
      for (int stage = 0; stage < stages; ++stage) {
        EXPECT_EQ(
            InFlight(stages, static_cast<std::uint64_t>(micro_batches), stage),
            static_cast<std::uint64_t>(timeline->most_in_flight[static_cast<std::size_t>(stage)]));
      }
    }
  }
}

}  // namespace
}  // namespace geminid::parallel
