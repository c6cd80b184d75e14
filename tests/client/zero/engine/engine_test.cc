// The engine with a real daemon in this process, compared with a dense reference bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/client/zero/engine_fixture.h"

namespace geminid::zero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ClippedEngineTest : public EngineTest {
 protected:
  void ExpectDenseNormsAndWeights() {
    const SyntheticResult result = MustTrain();
    const DenseResult dense = RunDensely(run_);
    ASSERT_EQ(result.steps.size(), dense.gradient_norms.size());
    for (size_t step = 0; step < result.steps.size(); ++step) {
      const double norm = dense.gradient_norms[step];
      ASSERT_GT(norm, 2 * run_.options.clip_norm);
      // Exact except for the order of additions. Later norms also depend on the weights.
      EXPECT_NEAR(result.steps[step].gradient_norm, norm, (step == 0 ? 1e-12 : 1e-6) * norm);
      EXPECT_NEAR(result.steps[step].clip_coefficient, run_.options.clip_norm / norm, 1e-7);
    }
    ASSERT_EQ(result.weights.size(), dense.weights.size());
    for (size_t p = 0; p < dense.weights.size(); ++p) {
      double difference = 0;
      for (size_t i = 0; i < dense.weights[p].size(); ++i) {
        difference = std::max(difference,
                              std::abs(double{result.weights[p][i]} - double{dense.weights[p][i]}));
      }
      EXPECT_LE(difference, 1e-7) << run_.model.parameters[p].name;
    }
  }
};

TEST_F(EngineTest, EveryPlacementArenaAndWorldSize_GivesTheBitsOfDenseTraining) {
  for (int world_size : {1, 2, 3}) {
    run_.world_size = world_size;
    const std::vector<std::vector<float>> expected = TrainDensely(run_);
    for (auto [placement, arena] :
         {std::pair{Placement::kAuto, kTightArena}, std::pair{Placement::kAuto, kAmpleArena},
          std::pair{Placement::kCpu, kTightArena}, std::pair{Placement::kCpu, kAmpleArena},
          std::pair{Placement::kDevice, kAmpleArena}}) {
      SCOPED_TRACE(::testing::Message() << "world " << world_size << ", placement "
                                        << static_cast<int>(placement) << ", arena " << arena);
      run_.options.placement = placement;
      run_.arena_bytes = arena;
      ExpectSameBits(MustTrain().weights, expected);
    }
  }
}

TEST_F(EngineTest, EveryStatePlacement_GivesTheBitsOfDenseTraining) {
  run_.arena_bytes = 1 << 20;
  for (int world_size : {1, 2, 4}) {
    for (int accumulate : {1, 2}) {
      run_.world_size = world_size;
      run_.options.accumulate = accumulate;
      const std::vector<std::vector<float>> expected = TrainDensely(run_);
      for (auto [placement, share] :
           {std::pair{StatePlacement::kAuto, 0.0}, std::pair{StatePlacement::kHost, 0.0},
            std::pair{StatePlacement::kShare, 0.3}, std::pair{StatePlacement::kShare, 1.0},
            std::pair{StatePlacement::kStreamed, 0.0}, std::pair{StatePlacement::kStreamed, 0.5}}) {
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

TEST_F(EngineTest, StateOnTheDevice_IsNotTransferredAndSparesTheLink) {
  run_.world_size = 2;
  run_.steps = 12;
  run_.arena_bytes = 1 << 20;
  run_.options.state_placement = StatePlacement::kHost;
  const Statistics host = MustTrain().statistics[0];
  EXPECT_EQ(host.device_state_bytes, 0u);
  EXPECT_EQ(host.state_chunks_on_device, 0u);
  run_.options.state_placement = StatePlacement::kShare;
  Statistics last = host;
  for (double share : {0.4, 0.9}) {
    run_.options.state_share = share;
    const Statistics some = MustTrain().statistics[0];
    EXPECT_GT(some.state_chunks_on_device, last.state_chunks_on_device);
    EXPECT_LT(some.state_chunks_on_device, some.chunks);
    EXPECT_GT(some.device_state_bytes, last.device_state_bytes);
    EXPECT_LT(some.device_to_host_bytes, last.device_to_host_bytes);
    EXPECT_LE(some.peak_total_bytes, run_.arena_bytes);
    last = some;
  }
}

TEST_F(EngineTest, StateOnTheDeviceFromTheStart_TakesNoHostMemory) {
  run_.options.state_placement = StatePlacement::kDevice;
  run_.arena_bytes = kAmpleArena;
  const SyntheticResult result = MustTrain();
  EXPECT_EQ(result.statistics[0].host_bytes, 0u);
  EXPECT_EQ(result.statistics[0].host_to_device_bytes, 0u);
  ExpectSameBits(result.weights, TrainDensely(run_));
  run_.arena_bytes = kTightArena;
  SyntheticResult none;
  EXPECT_TRUE(absl::IsResourceExhausted(TrainStatuses(run_, &none)[0]));
}

TEST_F(EngineTest, GradientAccumulation_AddsTheMicroBatchesInFp32) {
  run_.world_size = 2;
  run_.options.accumulate = 3;
  run_.arena_bytes = kTightArena;
  const std::vector<std::vector<float>> expected = TrainDensely(run_);
  ExpectSameBits(MustTrain().weights, expected);
  run_.options.placement = Placement::kDevice;
  run_.arena_bytes = kAmpleArena;
  ExpectSameBits(MustTrain().weights, expected);
}

TEST_F(EngineTest, Fp32Training_GivesTheBitsOfDenseTraining) {
  run_.world_size = 2;
  run_.options.data_type = DataType::kFloat32;
  run_.arena_bytes = 2 * kTightArena;
  ExpectSameBits(MustTrain().weights, TrainDensely(run_));
}

TEST_F(EngineTest, FrozenAndUnusedParameters_KeepOrDecayAsDenseTrainingSays) {
  run_.model.parameters[2].trainable = false;  // layer.0.up
  Parameter unused;
  unused.name = "unused";
  unused.shape = {777};
  run_.model.parameters.push_back(unused);
  run_.world_size = 2;
  ExpectSameBits(MustTrain().weights, TrainDensely(run_));
}

TEST_F(EngineTest, EvaluationBetweenSteps_ChangesNothing) {
  run_.world_size = 2;
  run_.arena_bytes = kTightArena;
  run_.between_steps = [this](Engine* engine, int, int) {
    for (const auto& parameters : run_.model.operators) {
      std::vector<ParameterId> ids;
      for (uint32_t parameter : parameters) ids.push_back(ParameterId{parameter});
      absl::StatusOr<Operation> operation = engine->Use(Pass::kEvaluate, ids);
      ASSERT_TRUE(operation.ok()) << operation.status();
    }
  };
  ExpectSameBits(MustTrain().weights, TrainDensely(run_));
}

TEST_F(EngineTest, SlowLink_ChangesTheTimeAndNothingElse) {
  run_.world_size = 2;
  run_.steps = 3;
  run_.arena_bytes = kTightArena;
  run_.copy_bytes_per_second = 50e6;
  ExpectSameBits(MustTrain().weights, TrainDensely(run_));
}

TEST_F(EngineTest, MoreActivationsThanSampled_PlansAgainAndNeverFails) {
  run_.world_size = 2;
  run_.steps = 6;
  run_.arena_bytes = 1 << 20;
  run_.options.state_placement = StatePlacement::kHost;  // so that there is room to grow
  run_.activation_bytes_at = [](int, int step, uint64_t bytes) {
    return step < 3 ? bytes : 6 * bytes;
  };
  const SyntheticResult result = MustTrain();
  ExpectSameBits(result.weights, TrainDensely(run_));
  EXPECT_EQ(result.statistics[0].plans_made, 2u);
}

TEST_F(EngineTest, MoreActivationsOnOneRank_MakeAllPlanAgain) {
  run_.world_size = 3;
  run_.steps = 6;
  run_.arena_bytes = 1 << 20;
  run_.options.state_placement = StatePlacement::kHost;
  run_.activation_bytes_at = [](int rank, int step, uint64_t bytes) {
    return rank == 1 && step >= 3 ? 6 * bytes : bytes;
  };
  const SyntheticResult result = MustTrain();
  ExpectSameBits(result.weights, TrainDensely(run_));
  for (const Statistics& statistics : result.statistics) EXPECT_EQ(statistics.plans_made, 2u);
}

TEST_F(EngineTest, OperatorsInAnotherOrder_AreFollowedAndPlannedAgain) {
  run_.world_size = 2;
  run_.steps = 6;
  run_.arena_bytes = 1 << 20;
  run_.operators_at = OperatorsSwappedFrom(3, run_);
  const SyntheticResult result = MustTrain();
  ExpectSameBits(result.weights, TrainDensely(run_));
  EXPECT_EQ(result.statistics[1].plans_made, 2u);
}

TEST_F(EngineTest, ClippedStep_ReportsTheNormOfAllRanksAndScalesByIt) {
  run_.options.clip_norm = 0.5;
  run_.steps = 2;
  run_.world_size = 1;
  const SyntheticResult one = MustTrain();
  ASSERT_EQ(one.steps.size(), 2u);
  EXPECT_GT(one.steps[0].gradient_norm, 0.5);
  EXPECT_NEAR(one.steps[0].clip_coefficient, 0.5 / one.steps[0].gradient_norm, 1e-6);
  run_.options.placement = Placement::kCpu;
  const SyntheticResult cpu = MustTrain();
  EXPECT_EQ(cpu.steps[1].gradient_norm, one.steps[1].gradient_norm);
  ExpectSameBits(cpu.weights, one.weights);
}

// Each shard has several granules; its last one is full, and the next shard's is partly padding.
// Plain SGD: its weights are linear in the clip coefficient, which Adam nearly divides out.
TEST_F(ClippedEngineTest, NormAndClippedWeights_AreThoseOfDenseTraining) {
  run_.options.chunk_elements = 1 << 17;
  run_.options.clip_norm = 20;
  run_.options.optimizer = SgdOptions{};
  run_.arena_bytes = kAmpleArena;
  for (int world_size : {1, 2, 3}) {
    for (int accumulate : {1, 2}) {
      for (DataType type : {DataType::kBFloat16, DataType::kFloat32}) {
        for (StatePlacement placement : {StatePlacement::kHost, StatePlacement::kDevice}) {
          SCOPED_TRACE(::testing::Message()
                       << "world " << world_size << ", accumulate " << accumulate << ", type "
                       << static_cast<int>(type) << ", state " << static_cast<int>(placement));
          run_.world_size = world_size;
          run_.options.accumulate = accumulate;
          run_.options.data_type = type;
          run_.options.state_placement = placement;
          ExpectDenseNormsAndWeights();
        }
      }
    }
  }
}

TEST_F(ClippedEngineTest, NormOfBothTypes_IsThatOfDenseTraining) {
  run_.options.chunk_elements = 1 << 17;
  run_.options.clip_norm = 20;
  run_.options.optimizer = SgdOptions{};
  run_.arena_bytes = kAmpleArena;
  run_.model = MixedModel(DataType::kFloat32);
  for (int world_size : {1, 2, 4}) {
    for (int accumulate : {1, 2}) {
      SCOPED_TRACE(::testing::Message() << "world " << world_size << ", accumulate " << accumulate);
      run_.world_size = world_size;
      run_.options.accumulate = accumulate;
      ExpectDenseNormsAndWeights();
    }
  }
}

TEST_F(ClippedEngineTest, NormBelowTheLimit_ScalesNothing) {
  run_.world_size = 2;
  run_.options.optimizer = SgdOptions{};
  const std::vector<std::vector<float>> expected = TrainDensely(run_);
  run_.options.clip_norm = 1e6;
  const SyntheticResult result = MustTrain();
  for (const StepResult& step : result.steps) EXPECT_EQ(step.clip_coefficient, 1.0);
  ExpectSameBits(result.weights, expected);
}

TEST_F(EngineTest, TightArena_StaysBelowItsCapacityAndAboveTheBound) {
  run_.world_size = 2;
  run_.steps = 8;
  run_.arena_bytes = kTightArena;
  for (const Statistics& statistics : MustTrain().statistics) {
    EXPECT_LE(statistics.peak_total_bytes, kTightArena);
    EXPECT_GT(statistics.peak_total_bytes, statistics.peak_workspace_bytes);
    EXPECT_GE(statistics.host_to_device_bytes, statistics.transfer_bytes_lower_bound);
    EXPECT_GT(statistics.transfer_bytes_lower_bound, 0u);
    EXPECT_EQ(statistics.model_bytes, statistics.device_state_bytes);
    EXPECT_EQ(statistics.workspace_bytes, 0u);
  }
}

TEST_F(EngineTest, AmpleArena_MovesTheStateThereOnceAndThenNothing) {
  run_.world_size = 2;
  run_.arena_bytes = kAmpleArena;
  run_.steps = 3;
  const SyntheticResult few = MustTrain();
  run_.steps = 9;
  const SyntheticResult many = MustTrain();
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(many.statistics[rank].everything_fits);
    EXPECT_EQ(many.statistics[rank].host_to_device_bytes,
              few.statistics[rank].host_to_device_bytes);
    EXPECT_EQ(many.statistics[rank].device_to_host_bytes,
              few.statistics[rank].device_to_host_bytes);
  }
}

TEST_F(EngineTest, HostMemory_IsTheStateTheGradientsAndLittleElse) {
  run_.model = SyntheticModel{};
  run_.options.chunk_elements = 0;
  for (int layer = 0; layer < 24; ++layer) {
    Parameter matrix;
    matrix.name = "matrix " + std::to_string(layer);
    matrix.shape = {256, 512};
    run_.model.parameters.push_back(matrix);
    run_.model.operators.push_back({static_cast<uint32_t>(layer)});
  }
  run_.world_size = 2;
  run_.steps = 1;
  run_.arena_bytes = 16 << 20;
  const SyntheticResult result = MustTrain();
  uint64_t host_bytes = 0;
  for (const Statistics& statistics : result.statistics) host_bytes += statistics.host_bytes;
  const double parameters = static_cast<double>(result.statistics[0].parameters);
  EXPECT_GE(static_cast<double>(host_bytes) / parameters, 14.0);
  EXPECT_LE(static_cast<double>(host_bytes) / parameters, 14.5);
}

TEST_F(EngineTest, ArenaTooSmallForOneOperator_SaysTheNumbersOnEveryRank) {
  run_.world_size = 2;
  run_.arena_bytes = 96 << 10;
  SyntheticResult result;
  const std::vector<absl::Status> statuses = TrainStatuses(run_, &result);
  int exhausted = 0;
  for (const absl::Status& status : statuses) {
    EXPECT_FALSE(status.ok());
    exhausted += absl::IsResourceExhausted(status) ? 1 : 0;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("does not fit"), HasSubstr("96.0 KiB")));
  }
  EXPECT_GE(exhausted, 1);
}

TEST_F(EngineTest, PlacementDeviceThatDoesNotFit_IsRefused) {
  run_.options.placement = Placement::kDevice;
  run_.arena_bytes = kTightArena;
  SyntheticResult result;
  const absl::Status status = TrainStatuses(run_, &result)[0];
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
}

TEST_F(EngineTest, RankThatStops_MakesTheOthersStopWithItsName) {
  run_.world_size = 3;
  run_.before_step = [](int rank, int step) {
    return rank == 1 && step == 2 ? absl::InternalError("its data ran out") : absl::OkStatus();
  };
  SyntheticResult result;
  const std::vector<absl::Status> statuses = TrainStatuses(run_, &result);
  for (int rank : {0, 2}) {
    EXPECT_THAT(std::string(statuses[static_cast<size_t>(rank)].message()), HasSubstr("rank 1"));
  }
}

TEST_F(EngineTest, SecondRun_GivesTheSameBits) {
  run_.world_size = 2;
  run_.arena_bytes = kTightArena;
  run_.options.clip_norm = 1;
  const SyntheticResult first = MustTrain();
  ExpectSameBits(MustTrain().weights, first.weights);
}

}  // namespace
}  // namespace geminid::zero
