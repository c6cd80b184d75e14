// The optimizer's state in bf16. Its bits are those of dense training whose state is rounded by the
// parameter's name, the element and the update, wherever the state lies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "kernels/runtime/common/bfloat16.h"
#include "tests/client/zero/engine_fixture.h"

namespace geminid::zero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class EngineStateTypeTest : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    run_.options.state_type = DataType::kBFloat16;
  }

  absl::Status Refused() {
    SyntheticResult none;
    return TrainStatuses(run_, &none)[0];
  }
};

TEST_F(EngineStateTypeTest, EveryWorldSizePlacementAndType_GivesTheBitsOfDenseTraining) {
  run_.model = MixedModel(DataType::kFloat32);
  for (int world_size : {1, 2, 4}) {
    run_.world_size = world_size;
    const std::vector<std::vector<float>> expected = TrainDensely(run_);
    for (auto [placement, state] : {std::pair{Placement::kAuto, StatePlacement::kHost},
                                    std::pair{Placement::kAuto, StatePlacement::kShare},
                                    std::pair{Placement::kDevice, StatePlacement::kAuto}}) {
      SCOPED_TRACE(::testing::Message()
                   << "world " << world_size << ", placement " << static_cast<int>(placement)
                   << ", state " << static_cast<int>(state));
      run_.options.placement = placement;
      run_.options.state_placement = state;
      run_.options.state_share = 0.5;
      ExpectSameBits(MustTrain().weights, expected);
    }
  }
}

TEST_F(EngineStateTypeTest, ChunksThreadsAndTimeOfUpdates_ChangeNoBit) {
  const std::vector<std::vector<float>> expected = TrainDensely(run_);
  for (const uint64_t chunk_elements : {uint64_t{0}, uint64_t{16384}, uint64_t{50000}}) {
    for (const int threads : {1, 3}) {
      for (const UpdateTime update : {UpdateTime::kAfterStep, UpdateTime::kInBackward}) {
        SCOPED_TRACE(::testing::Message() << chunk_elements << " elements, " << threads
                                          << " threads, update " << static_cast<int>(update));
        run_.options.chunk_elements = chunk_elements;
        run_.options.update_threads = threads;
        run_.options.update = update;
        ExpectSameBits(MustTrain().weights, expected);
      }
    }
  }
}

TEST_F(EngineStateTypeTest, ElementwiseOptimizers_GiveTheBitsOfDenseTraining) {
  run_.options.data_type = DataType::kFloat32;
  for (const Optimizer& optimizer :
       {Optimizer(AdamOptions{.weight_decay = 0.01}),
        Optimizer(SgdOptions{.momentum = 0.9, .nesterov = true}), Optimizer(AdagradOptions{}),
        Optimizer(LionOptions{.weight_decay = 0.1})}) {
    for (int world_size : {1, 2}) {
      SCOPED_TRACE(::testing::Message() << Name(optimizer) << ", world " << world_size);
      run_.options.optimizer = optimizer;
      run_.world_size = world_size;
      ExpectSameBits(MustTrain().weights, TrainDensely(run_));
    }
  }
}

TEST_F(EngineStateTypeTest, OptimizersWithSums_GiveTheSameBitsForEveryPlacement) {
  run_.world_size = 2;
  for (const Optimizer& optimizer :
       {Optimizer(LambOptions{}), Optimizer(LarsOptions{}),
        Optimizer(AdafactorOptions{.beta1 = 0.9}), Optimizer(CameOptions{})}) {
    SCOPED_TRACE(Name(optimizer));
    run_.options.optimizer = optimizer;
    run_.options.placement = Placement::kAuto;
    const std::vector<std::vector<float>> first = MustTrain().weights;
    run_.options.placement = Placement::kDevice;
    ExpectSameBits(MustTrain().weights, first);
    run_.options.state_type = DataType::kFloat32;
    EXPECT_NE(MustTrain().weights, first);
    run_.options.state_type = DataType::kBFloat16;
  }
}

TEST_F(EngineStateTypeTest, MicroBatchesAndOverflows_GiveTheBitsOfDenseTraining) {
  run_.world_size = 2;
  run_.options.accumulate = 2;
  run_.options.loss_scale = FixedLossScale(1);
  run_.overflow_step = 2;
  ExpectSameBits(MustTrain().weights, TrainDensely(run_));
}

TEST_F(EngineStateTypeTest, Memory_IsEightBytesAParameterInsteadOfTwelve) {
  run_.steps = 1;
  const uint64_t small = MustTrain().statistics[0].model_state_bytes;
  run_.options.state_type = DataType::kFloat32;
  const uint64_t whole = MustTrain().statistics[0].model_state_bytes;
  EXPECT_EQ(small % 8, 0u);
  EXPECT_EQ(small / 8, whole / 12);
}

TEST_F(EngineStateTypeTest, ValuesOfState_AreBFloat16AndRoundedToNearestWhenWritten) {
  run_.between_steps = [](Engine* engine, int, int step) {
    const ParameterId id{1};
    const ShardRange range = engine->ShardOf(id).front();
    std::vector<float> values(range.elements);
    ASSERT_TRUE(engine->ReadShard(id, StateKind::kExpAvgSq, range.offset, values).ok());
    EXPECT_NE(values[0], 0);
    for (const float value : values) {
      ASSERT_EQ(kernels::BFloat16::FromFloat(value).ToFloat(), value);
    }
    if (step > 0) return;
    const float between = 1.0F + 0.75F / 128;  // nearer to the upper value of bf16
    ASSERT_TRUE(engine->WriteShard(id, StateKind::kExpAvg, range.offset, {&between, 1}).ok());
    ASSERT_TRUE(engine->ReadShard(id, StateKind::kExpAvg, range.offset, {values.data(), 1}).ok());
    EXPECT_EQ(values[0], 1.0F + 1.0F / 128);
  };
  MustTrain();
}

TEST_F(EngineStateTypeTest, OptimizerWithoutArrays_IsRefusedByName) {
  run_.options.optimizer = SgdOptions{};
  EXPECT_TRUE(absl::IsInvalidArgument(Refused()));
  EXPECT_THAT(std::string(Refused().message()),
              AllOf(HasSubstr("state_type is bf16"), HasSubstr("sgd"), HasSubstr("has no state")));
}

TEST_F(EngineStateTypeTest, TypeThatStateIsNotKeptIn_IsRefused) {
  run_.options.state_type = DataType::kInt8;
  EXPECT_TRUE(absl::IsInvalidArgument(Refused()));
  EXPECT_THAT(std::string(Refused().message()),
              AllOf(HasSubstr("state_type is int8"), HasSubstr("fp32 or bf16")));
}

}  // namespace
}  // namespace geminid::zero
