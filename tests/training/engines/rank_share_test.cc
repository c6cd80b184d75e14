#include "training/settings/rank_share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "training/engines/activation_choice.h"
#include "training/transformer/transformer.h"

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
    for (const Activations activations : {Activations::kAuto, Activations::kRecompute}) {
      options.activations = activations;
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

// By hand: in 1F1B, stage s of S stages holds S - s micro-batches of its layers.
TEST(LayersInFlight, OfAStage_AreThoseOfTheMicroBatchesThatItHolds) {
  const TrainOptions options = InStages(4, 1);
  for (int stage = 0; stage < 4; ++stage) {
    const uint64_t layers = LargestPart(options, stage).layers;
    EXPECT_EQ(LayersInFlight(options, stage).layers, layers * static_cast<uint64_t>(4 - stage));
  }
  EXPECT_EQ(LayersInFlight(InStages(1, 1), 0).layers, 8u);
}

// By hand: two stages have two parts of one layer each. The first stage's schedule decides.
TEST(WorkspaceBytesOfShare, InHalves_HasRoomForWhatTheWeightsWaitFor) {
  TrainOptions options = InStages(2, 2);
  options.model.layers = 4;
  options.activations = Activations::kRecompute;
  const uint64_t interleaved = WorkspaceBytesOfShare(options, 2, 1);
  options.parallel.schedule = collectives::PipelineKind::kZeroBubbleV;
  const uint64_t in_halves = WorkspaceBytesOfShare(options, 2, 1);
  const MicroBatchShape shape = ShapeOfShare(options, 2);
  const zero::DataType type = options.zero.data_type;
  const uint64_t later =
      LaterBytes(options.model, type,
                 {.first_layer = 1, .layers = 1, .embeds = false, .outputs = false}, shape,
                 /*logit_alignment=*/1);
  EXPECT_GT(in_halves, interleaved);
  EXPECT_GT(in_halves, WorkspaceBytesBound(
                           [&] {
                             ModelConfig none = options.model;
                             none.layers = 0;
                             return none;
                           }(),
                           type, shape) +
                           later);
  EXPECT_EQ(in_halves, std::max(WorkspaceBytesOfShare(options, 2, 1, 0),
                                WorkspaceBytesOfShare(options, 2, 1, 1)));
  EXPECT_GT(KeptBytesOfShare(options, 2), 0u);
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
