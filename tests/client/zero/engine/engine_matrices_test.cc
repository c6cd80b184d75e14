// Muon in the engine. Each whole matrix is on one rank. Its bits are those of dense training
// wherever the matrix lies, and each of its parameters takes 8 bytes of state and weight.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/client/zero/engine_fixture.h"

namespace geminid::zero {
namespace {

using ::testing::HasSubstr;

class EngineMatricesTest : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    run_.options.optimizer = MuonOptions{};
    for (Parameter& parameter : run_.model.parameters) {
      parameter.orthogonal = parameter.shape.size() == 2 && parameter.name != "embedding";
    }
  }

  absl::Status Refused() {
    SyntheticResult none;
    return TrainStatuses(run_, &none)[0];
  }
};

TEST_F(EngineMatricesTest, EveryWorldSizePlacementAndType_GivesTheBitsOfDenseTraining) {
  for (const DataType type : {DataType::kBFloat16, DataType::kFloat32}) {
    run_.options.data_type = type;
    for (int world_size : {1, 2, 4}) {
      run_.world_size = world_size;
      const std::vector<std::vector<float>> expected = TrainDensely(run_);
      for (auto [placement, state] : {std::pair{Placement::kAuto, StatePlacement::kHost},
                                      std::pair{Placement::kAuto, StatePlacement::kShare},
                                      std::pair{Placement::kAuto, StatePlacement::kStreamed},
                                      std::pair{Placement::kDevice, StatePlacement::kAuto}}) {
        SCOPED_TRACE(::testing::Message()
                     << "type " << static_cast<int>(type) << ", world " << world_size
                     << ", placement " << static_cast<int>(placement) << ", state "
                     << static_cast<int>(state));
        run_.options.placement = placement;
        run_.options.state_placement = state;
        run_.options.state_share = 0.5;
        ExpectSameBits(MustTrain().weights, expected);
      }
    }
  }
}

TEST_F(EngineMatricesTest, ChunksThreadsUnitsAndTimeOfUpdates_ChangeNoBit) {
  run_.world_size = 2;
  const std::vector<std::vector<float>> expected = TrainDensely(run_);
  for (const uint64_t chunk_elements : {uint64_t{0}, uint64_t{16384}, uint64_t{200000}}) {
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

TEST_F(EngineMatricesTest, MicroBatchesAndOverflows_GiveTheBitsOfDenseTraining) {
  run_.world_size = 2;
  run_.options.accumulate = 2;
  run_.options.loss_scale = FixedLossScale(1);
  run_.overflow_step = 2;
  ExpectSameBits(MustTrain().weights, TrainDensely(run_));
}

TEST_F(EngineMatricesTest, StateInBFloat16_GivesTheSameBitsForEveryPlacementAndWorldSize) {
  run_.options.state_type = DataType::kBFloat16;
  std::vector<std::vector<float>> first;
  for (int world_size : {1, 2}) {
    for (const Placement placement : {Placement::kAuto, Placement::kDevice}) {
      run_.world_size = world_size;
      run_.options.placement = placement;
      const std::vector<std::vector<float>> expected = TrainDensely(run_);
      ExpectSameBits(MustTrain().weights, expected);
    }
  }
}

TEST_F(EngineMatricesTest, Experts_AreSteppedMatrixByMatrix) {
  // Two matrices in one parameter, and the same two as separate parameters.
  Parameter& both = run_.model.parameters[2];
  both.shape = {2, 96, 48};
  ExpectSameBits(MustTrain().weights, TrainDensely(run_));
}

TEST_F(EngineMatricesTest, Matrices_HaveOneArrayOfStateAndOthersTwo) {
  run_.between_steps = [this](Engine* engine, int, int) {
    for (uint32_t i = 0; i < run_.model.parameters.size(); ++i) {
      const ParameterId id{i};
      if (engine->ShardOf(id).empty()) continue;
      EXPECT_TRUE(engine->HasState(id, StateKind::kExpAvg));
      EXPECT_EQ(engine->HasState(id, StateKind::kExpAvgSq), !run_.model.parameters[i].orthogonal);
    }
  };
  MustTrain();
}

TEST_F(EngineMatricesTest, WhatIsNoWholeMatrix_IsRefusedByName) {
  run_.model.parameters[1].orthogonal = true;
  EXPECT_TRUE(absl::IsInvalidArgument(Refused())) << Refused();
  EXPECT_THAT(std::string(Refused().message()), HasSubstr("'layer.0.norm' has fewer than two"));
}

TEST_F(EngineMatricesTest, OtherOptimizers_DoNotLookAtIt) {
  run_.options.optimizer = AdamWOptions{};
  const std::vector<std::vector<float>> with = MustTrain().weights;
  for (Parameter& parameter : run_.model.parameters) parameter.orthogonal = false;
  ExpectSameBits(MustTrain().weights, with);
}

}  // namespace
}  // namespace geminid::zero
