#include "tools/trainer/rank_share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tools/trainer/recompute_choice.h"

namespace geminid::trainer {
namespace {

TrainOptions InStages(int stages, int chunks) {
  TrainOptions options;
  options.model = *FindPreset("llama-tiny");
  options.model.layers = 8;
  options.batch = 4;
  options.zero.accumulate = 8;
  options.parallel.pipeline = stages;
  options.parallel.chunks = chunks;
  if (chunks > 1) options.parallel.schedule = collectives::PipelineKind::kInterleaved;
  return options;
}

TEST(UnlimitedDeviceBytes, OfLaterStages_IsLess) {
  for (const int chunks : {1, 2}) {
    TrainOptions options = InStages(4, chunks);
    for (const Recompute recompute : {Recompute::kAuto, Recompute::kOn}) {
      options.recompute = recompute;
      uint64_t before = UnlimitedDeviceBytes(options, 4, 1);
      EXPECT_EQ(UnlimitedDeviceBytes(options, 4, 1, 0), before);
      for (int stage = 1; stage < 4; ++stage) {
        const uint64_t bytes = UnlimitedDeviceBytes(options, 4, 1, stage);
        EXPECT_LT(bytes, before) << stage;
        before = bytes;
      }
    }
  }
}

TEST(UnlimitedDeviceBytes, OfCutLayersInStages_IsLessInLaterOnes) {
  TrainOptions options = InStages(2, 1);
  options.parallel.tensor = {.size = 2};
  EXPECT_LT(UnlimitedDeviceBytes(options, 4, 1, 1), UnlimitedDeviceBytes(options, 4, 1, 0));
}

// By hand: in 1F1B stage s of S holds S - s micro-batches of its layers.
TEST(LayersInFlight, OfAStage_AreThoseOfTheMicroBatchesThatItHolds) {
  const TrainOptions options = InStages(4, 1);
  for (int stage = 0; stage < 4; ++stage) {
    const uint64_t layers = LargestPart(options, stage).layers;
    EXPECT_EQ(LayersInFlight(options, stage).layers, layers * static_cast<uint64_t>(4 - stage));
  }
  EXPECT_EQ(LayersInFlight(InStages(1, 1), 0).layers, 8u);
}

TEST(LargestPart, OfNoStage_IsThatOfTheOneWithMost) {
  const TrainOptions options = InStages(3, 1);
  uint64_t most = 0, all = 0;
  for (int stage = 0; stage < 3; ++stage) {
    const uint64_t layers = LargestPart(options, stage).layers;
    most = std::max(most, layers);
    all += layers;
  }
  EXPECT_EQ(LargestPart(options).layers, most);
  EXPECT_EQ(all, 8u);
}

}  // namespace
}  // namespace geminid::trainer
