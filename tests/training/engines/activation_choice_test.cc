#include "training/engines/activation_choice.h"

#include <gtest/gtest.h>

namespace geminid::trainer {
namespace {

TrainOptions InStage(zero::Stage stage, int accumulate) {
  TrainOptions options;
  options.model = {.family = Family::kGpt2,
                   .layers = 2,
                   .hidden = 8,
                   .heads = 2,
                   .kv_heads = 2,
                   .intermediate = 32,
                   .context = 10,
                   .vocabulary = 17};
  options.zero.stage = stage;
  options.zero.accumulate = accumulate;
  return options;
}

TEST(StepWorkingSetBytes, WhereWeightsStay_HasAllOfThemWithTheirPadding) {
  constexpr uint64_t kPart = 1000;
  zero::Statistics quarter;
  quarter.waste_ratio = 0.25;
  const uint64_t weights = 2 * CountParameters(InStage(zero::Stage::kWeights, 1).model);
  for (const uint64_t accumulate : {1, 4}) {
    const auto bytes = [&](zero::Stage stage) {
      const TrainOptions options = InStage(stage, static_cast<int>(accumulate));
      return StepWorkingSetBytes(options, kPart, quarter);
    };
    const uint64_t part = accumulate == 1 ? kPart : 2 * kPart;
    EXPECT_EQ(bytes(zero::Stage::kWeights), part);
    EXPECT_EQ(bytes(zero::Stage::kGradients), part + weights * 4 / 3);
    EXPECT_EQ(bytes(zero::Stage::kState), part + weights * 4 / 3);
  }
}

// Bytes per parameter: 12 of state, 2 of the weight and 2 of its gradient in bf16. Several
// micro-batches add an fp32 sum of 4, and a sum of reduced gradients adds 2 for the reduced
// gradients. The total includes a quarter as headroom, and spares of twice the model plus 4 MiB.
TEST(WholeModelBytes, OfEachStage_HasItsSums) {
  const auto bytes = [](zero::Stage stage, int accumulate) {
    return WholeModelBytes(InStage(stage, accumulate)) - (uint64_t{4} << 20);
  };
  const uint64_t count = CountParameters(InStage(zero::Stage::kWeights, 1).model);
  const auto with_room = [count](uint64_t each) { return 3 * count * each + count * each / 4; };
  for (const auto stage : {zero::Stage::kState, zero::Stage::kGradients, zero::Stage::kWeights}) {
    EXPECT_EQ(bytes(stage, 1), with_room(12 + 2 + 2));
  }
  EXPECT_EQ(bytes(zero::Stage::kState, 2), with_room(12 + 2 + 2 + 4));
  EXPECT_EQ(bytes(zero::Stage::kGradients, 2), with_room(12 + 2 + 2 + 4 + 2));
  EXPECT_EQ(bytes(zero::Stage::kWeights, 2), with_room(12 + 2 + 2 + 4 + 2));
}

TEST(WholeModelBytes, OfALargeModel_HasSparesOfAMostSize) {
  TrainOptions options = InStage(zero::Stage::kWeights, 1);
  options.model.hidden = 1024;
  options.model.intermediate = 4096;
  const uint64_t model = CountParameters(options.model) * (12 + 2 + 2);
  EXPECT_EQ(WholeModelBytes(options), model + model / 4 + (uint64_t{64} << 20));
}

}  // namespace
}  // namespace geminid::trainer
