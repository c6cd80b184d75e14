// All optimizers, the loss scale, and the update's threads in the engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/client/zero/engine_fixture.h"

namespace geminid::zero {
namespace {

using ::testing::HasSubstr;

using OptimizerTest = EngineTest;

std::vector<Optimizer> AllOptimizers() {
  return {AdamWOptions{},
          AdamOptions{.weight_decay = 0.01},
          LambOptions{.max_grad_norm = 0},
          LarsOptions{.weight_decay = 0.01},
          SgdOptions{.momentum = 0.9, .nesterov = true},
          SgdOptions{.weight_decay = 0.1},
          AdagradOptions{},
          LionOptions{.weight_decay = 0.1},
          AdafactorOptions{},
          AdafactorOptions{.beta1 = 0.9, .relative_step = false},
          CameOptions{}};
}

bool NeedsNorms(const Optimizer& optimizer) {
  return std::holds_alternative<LambOptions>(optimizer) ||
         std::holds_alternative<LarsOptions>(optimizer) ||
         std::holds_alternative<AdafactorOptions>(optimizer) ||
         std::holds_alternative<CameOptions>(optimizer);
}

// The tolerance is relative to the largest weight, because a weight's rounding becomes one of bf16
// gradients.
void ExpectClose(const std::vector<std::vector<float>>& actual,
                 const std::vector<std::vector<float>>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t p = 0; p < actual.size(); ++p) {
    double largest = 0, difference = 0;
    for (size_t i = 0; i < actual[p].size(); ++i) {
      largest = std::max(largest, std::abs(double{expected[p][i]}));
      difference = std::max(difference, std::abs(double{actual[p][i]} - double{expected[p][i]}));
    }
    EXPECT_LE(difference, tolerance * largest) << "in parameter " << p;
  }
}

TEST_F(OptimizerTest, EveryOptimizer_TrainsAsTheDenseOneOnEveryWorldSize) {
  run_.options.data_type = DataType::kFloat32;
  run_.model.parameters[2].learning_rate_scale = 0.5;
  run_.model.parameters[3].weight_decay = 0.2;
  run_.steps = 3;
  for (const Optimizer& optimizer : AllOptimizers()) {
    run_.options.optimizer = optimizer;
    for (int world_size : {1, 2, 4}) {
      SCOPED_TRACE(::testing::Message() << Name(optimizer) << ", world " << world_size);
      run_.world_size = world_size;
      const std::vector<std::vector<float>> weights = MustTrain().weights;
      if (NeedsNorms(optimizer)) {
        ExpectClose(weights, TrainDensely(run_), 1e-5);
      } else {
        ExpectSameBits(weights, TrainDensely(run_));
      }
    }
  }
}

TEST_F(OptimizerTest, EveryOptimizer_GivesTheSameBitsForEveryPlacementAndRun) {
  run_.world_size = 2;
  run_.steps = 3;
  run_.options.clip_norm = 1;
  for (const Optimizer& optimizer : AllOptimizers()) {
    SCOPED_TRACE(Name(optimizer));
    run_.options.optimizer = optimizer;
    std::vector<std::vector<float>> first;
    for (auto [placement, arena] :
         {std::pair{Placement::kCpu, kTightArena}, std::pair{Placement::kAuto, uint64_t{1} << 20},
          std::pair{Placement::kAuto, kAmpleArena}}) {
      run_.options.placement = placement;
      run_.arena_bytes = arena;
      const std::vector<std::vector<float>> weights = MustTrain().weights;
      if (first.empty()) first = weights;
      ExpectSameBits(weights, first);
    }
  }
}

TEST_F(OptimizerTest, EveryOptimizerOnBothTypes_IsCloseToDenseTraining) {
  run_.world_size = 2;
  run_.steps = 3;
  run_.arena_bytes = 1 << 20;
  run_.model = MixedModel(DataType::kFloat32);
  for (const Optimizer& optimizer : AllOptimizers()) {
    SCOPED_TRACE(Name(optimizer));
    run_.options.optimizer = optimizer;
    ExpectClose(MustTrain().weights, TrainDensely(run_), 1e-5);
  }
}

TEST_F(OptimizerTest, MoreUpdateThreads_ChangeNoBit) {
  run_.options.chunk_elements = 1 << 19;  // 16 granules of two pieces each
  run_.arena_bytes = kAmpleArena;
  for (const Optimizer& optimizer : {Optimizer(AdamWOptions{}), Optimizer(CameOptions{})}) {
    run_.options.optimizer = optimizer;
    run_.options.update_threads = 1;
    const std::vector<std::vector<float>> one = MustTrain().weights;
    run_.options.update_threads = 3;
    ExpectSameBits(MustTrain().weights, one);
  }
  run_.options.update_threads = 0;
  SyntheticResult none;
  EXPECT_TRUE(absl::IsInvalidArgument(TrainStatuses(run_, &none)[0]));
}

TEST_F(OptimizerTest, EveryOptimizer_TakesOnlyTheMemoryOfItsState) {
  const auto state_bytes = [this](const Optimizer& optimizer) {
    run_.options.optimizer = optimizer;
    run_.steps = 1;
    return MustTrain().statistics[0];
  };
  const Statistics adamw = state_bytes(AdamWOptions{});
  const uint64_t elements = adamw.model_state_bytes / 12;  // including padding
  const uint64_t tensors = run_.model.parameters.size();
  EXPECT_EQ(state_bytes(LambOptions{}).model_state_bytes, 12 * elements + 16 * tensors);
  EXPECT_EQ(state_bytes(LionOptions{}).model_state_bytes, 8 * elements);
  EXPECT_EQ(state_bytes(AdagradOptions{}).model_state_bytes, 8 * elements);
  EXPECT_EQ(state_bytes(SgdOptions{}).model_state_bytes, 4 * elements);
  EXPECT_EQ(state_bytes(LarsOptions{}).model_state_bytes, 8 * elements + 16 * tensors);
  uint64_t factors = 0;
  for (const Parameter& parameter : run_.model.parameters) {
    for (int64_t dimension : parameter.shape) factors += static_cast<uint64_t>(dimension);
  }
  const Statistics adafactor = state_bytes(AdafactorOptions{});
  EXPECT_EQ(adafactor.model_state_bytes, 4 * elements + 16 * tensors + 4 * factors);
  EXPECT_LT(adafactor.host_bytes, adamw.host_bytes);
}

TEST_F(OptimizerTest, LambLimitsTheNormOfAllGradients_AsClippingThemDoes) {
  run_.options.optimizer = LambOptions{.max_grad_norm = 0.5};
  const std::vector<std::vector<float>> limited = MustTrain().weights;
  run_.options.optimizer = LambOptions{.max_grad_norm = 0};
  const std::vector<std::vector<float>> unlimited = MustTrain().weights;
  run_.options.clip_norm = 0.5;
  const std::vector<std::vector<float>> clipped = MustTrain().weights;
  ExpectClose(limited, clipped, 1e-4);
  EXPECT_NE(limited, unlimited);
  // LAMB's own clipping finds gradients that are already within the limit.
  run_.options.optimizer = LambOptions{.max_grad_norm = 0.5};
  ExpectSameBits(MustTrain().weights, clipped);
}

TEST_F(OptimizerTest, HyperparameterOutOfRange_IsRefusedWithItsNameAndValue) {
  run_.options.optimizer = LionOptions{.beta1 = 1.0};
  SyntheticResult result;
  const absl::Status status = TrainStatuses(run_, &result)[0];
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("beta1 is 1; with lion it must be"));
  run_.options.optimizer = LionOptions{};
  run_.model.parameters[1].learning_rate_scale = -1;
  EXPECT_THAT(std::string(TrainStatuses(run_, &result)[0].message()), HasSubstr("layer.0.norm"));
}

TEST_F(OptimizerTest, LossScaleOfAPowerOfTwo_ChangesNoBit) {
  run_.world_size = 2;
  run_.options.accumulate = 2;
  run_.options.clip_norm = 0.5;
  for (DataType data_type : {DataType::kBFloat16, DataType::kFloat32}) {
    run_.options.data_type = data_type;
    run_.options.loss_scale.reset();
    const SyntheticResult plain = MustTrain();
    run_.options.loss_scale = FixedLossScale(65536);
    const SyntheticResult scaled = MustTrain();
    ExpectSameBits(scaled.weights, plain.weights);
    EXPECT_EQ(scaled.steps[1].gradient_norm, plain.steps[1].gradient_norm);
    EXPECT_EQ(scaled.steps[1].loss_scale, 65536);
  }
}

TEST_F(OptimizerTest, OverflowedStep_LeavesTheWeightsAndLowersTheScale) {
  run_.world_size = 2;
  run_.steps = 5;
  run_.overflow_step = 2;
  run_.options.loss_scale = LossScalerOptions{.hysteresis = 1};
  const SyntheticResult result = MustTrain();
  for (size_t step = 0; step < 5; ++step) {
    EXPECT_EQ(result.steps[step].overflow, step == 2);
    EXPECT_EQ(result.steps[step].loss_scale, step <= 2 ? 65536 : 32768);
  }
  ExpectSameBits(result.weights, TrainDensely(run_));
}

}  // namespace
}  // namespace geminid::zero
