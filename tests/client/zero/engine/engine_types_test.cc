// Parameters of different data types in one model: fp32 norms with bf16 matrices, and the reverse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/client/zero/engine_fixture.h"

namespace geminid::zero {
namespace {

using ::testing::HasSubstr;

class EngineTypesTest : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    run_.model = MixedModel(DataType::kFloat32);
    run_.arena_bytes = 1 << 20;
  }
};

TEST_F(EngineTypesTest, EveryPlacementAndWorldSize_GivesTheBitsOfDenseTraining) {
  for (int world_size : {1, 2, 4}) {
    run_.world_size = world_size;
    const std::vector<std::vector<float>> expected = TrainDensely(run_);
    for (auto [placement, arena] :
         {std::pair{Placement::kAuto, 2 * kTightArena}, std::pair{Placement::kAuto, kAmpleArena},
          std::pair{Placement::kCpu, 2 * kTightArena},
          std::pair{Placement::kDevice, kAmpleArena}}) {
      SCOPED_TRACE(::testing::Message() << "world " << world_size << ", placement "
                                        << static_cast<int>(placement) << ", arena " << arena);
      run_.options.placement = placement;
      run_.arena_bytes = arena;
      ExpectSameBits(MustTrain().weights, expected);
    }
  }
}

TEST_F(EngineTypesTest, EveryStatePlacement_GivesTheBitsOfDenseTraining) {
  for (int world_size : {1, 2, 4}) {
    for (int accumulate : {1, 2}) {
      run_.world_size = world_size;
      run_.options.accumulate = accumulate;
      const std::vector<std::vector<float>> expected = TrainDensely(run_);
      for (auto [placement, share] :
           {std::pair{StatePlacement::kHost, 0.0}, std::pair{StatePlacement::kShare, 0.3},
            std::pair{StatePlacement::kShare, 1.0}}) {
        SCOPED_TRACE(::testing::Message()
                     << "world " << world_size << ", accumulate " << accumulate << ", placement "
                     << static_cast<int>(placement) << ", share " << share);
        run_.options.state_placement = placement;
        run_.options.state_share = share;
        ExpectSameBits(MustTrain().weights, expected);
      }
    }
  }
}

TEST_F(EngineTypesTest, BFloat16AmongFp32WithFrozenAndUnused_GivesTheBitsOfDenseTraining) {
  run_.options.data_type = DataType::kFloat32;
  run_.model = MixedModel(DataType::kBFloat16);
  run_.model.parameters[1].trainable = false;  // layer.0.norm, in bf16
  run_.model.parameters[2].trainable = false;  // layer.0.up, in fp32
  run_.model.parameters.push_back(
      {.name = "unused", .shape = {777}, .data_type = DataType::kBFloat16});
  run_.world_size = 2;
  ExpectSameBits(MustTrain().weights, TrainDensely(run_));
}

TEST_F(EngineTypesTest, TypeThatNamesWhatTheOptionsSayAnyway_ChangesNothing) {
  run_.model = SmallModel();
  const SyntheticResult unnamed = MustTrain();
  run_.model = MixedModel(DataType::kBFloat16);
  const SyntheticResult named = MustTrain();
  ExpectSameBits(named.weights, unnamed.weights);
  EXPECT_EQ(named.statistics[0].chunks, unnamed.statistics[0].chunks);
  EXPECT_EQ(named.statistics[0].model_state_bytes, unnamed.statistics[0].model_state_bytes);
}

// Each parameter has 12 bytes of state in either type, including padding.
TEST_F(EngineTypesTest, State_TakesNoMoreMemoryThanWithOneType) {
  run_.options.chunk_elements = 0;
  run_.steps = 1;
  const Statistics mixed = MustTrain().statistics[0];
  run_.model = SmallModel();
  const Statistics one = MustTrain().statistics[0];
  EXPECT_EQ(mixed.parameters, one.parameters);
  EXPECT_LT(static_cast<double>(mixed.model_state_bytes),
            1.2 * static_cast<double>(one.model_state_bytes));
}

TEST_F(EngineTypesTest, TypeThatDoesNotExist_IsRefusedWithTheParametersName) {
  // NOLINTNEXTLINE(clang-analyzer-optin.core.EnumCastOutOfRange): a caller's mistake
  run_.model.parameters[3].data_type = static_cast<DataType>(9);
  SyntheticResult none;
  const absl::Status status = TrainStatuses(run_, &none)[0];
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("layer.0.bias"));
}

}  // namespace
}  // namespace geminid::zero
