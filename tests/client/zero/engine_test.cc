// The engine against a real daemon in this process, and against a dense reference, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "tests/client/zero/synthetic_training.h"
#include "tests/daemon_env/daemon_env.h"

namespace geminid::zero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kTightArena = 320 << 10;
constexpr uint64_t kAmpleArena = 8 << 20;

class EngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(env_.Start().ok());
    run_.socket = env_.socket();
    run_.options.clip_norm = 0;
    run_.options.chunk_elements = 16384;
  }

  void ExpectSameBits(const std::vector<std::vector<float>>& actual,
                      const std::vector<std::vector<float>>& expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t p = 0; p < actual.size(); ++p) {
      ASSERT_EQ(actual[p].size(), expected[p].size());
      uint64_t different = 0;
      for (size_t i = 0; i < actual[p].size(); ++i) {
        different +=
            std::bit_cast<uint32_t>(actual[p][i]) != std::bit_cast<uint32_t>(expected[p][i]);
      }
      EXPECT_EQ(different, 0u) << "of " << actual[p].size() << " in "
                               << run_.model.parameters[p].name;
    }
  }

  SyntheticResult MustTrain() {
    absl::StatusOr<SyntheticResult> result = Train(run_);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : SyntheticResult{};
  }

  geminid::testing::DaemonEnv env_;
  SyntheticRun run_;
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
            std::pair{StatePlacement::kShare, 0.3}, std::pair{StatePlacement::kShare, 1.0}}) {
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
  run_.options.state_placement = StatePlacement::kHost;  // would take the room to grow
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
  run_.operators_at = [this](int step) {
    std::vector<std::vector<uint32_t>> operators = run_.model.operators;
    if (step >= 3) std::swap(operators[3], operators[8]);
    return operators;
  };
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

// Relative to the largest weight: gradients in bf16 turn a rounding of a weight into one of theirs.
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

TEST_F(EngineTest, EveryOptimizer_TrainsAsTheDenseOneOnEveryWorldSize) {
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

TEST_F(EngineTest, EveryOptimizer_GivesTheSameBitsForEveryPlacementAndRun) {
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

TEST_F(EngineTest, MoreUpdateThreads_ChangeNoBit) {
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

TEST_F(EngineTest, EveryOptimizer_TakesOnlyTheMemoryOfItsState) {
  const auto state_bytes = [this](const Optimizer& optimizer) {
    run_.options.optimizer = optimizer;
    run_.steps = 1;
    return MustTrain().statistics[0];
  };
  const Statistics adamw = state_bytes(AdamWOptions{});
  const uint64_t elements = adamw.model_state_bytes / 12;  // padding included
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

TEST_F(EngineTest, LambLimitsTheNormOfAllGradients_AsClippingThemDoes) {
  run_.options.optimizer = LambOptions{.max_grad_norm = 0.5};
  const std::vector<std::vector<float>> limited = MustTrain().weights;
  run_.options.optimizer = LambOptions{.max_grad_norm = 0};
  const std::vector<std::vector<float>> unlimited = MustTrain().weights;
  run_.options.clip_norm = 0.5;
  ExpectClose(limited, MustTrain().weights, 1e-4);
  EXPECT_NE(limited, unlimited);
}

TEST_F(EngineTest, HyperparameterOutOfRange_IsRefusedWithTheOptimizersName) {
  run_.options.optimizer = LionOptions{.beta1 = 1.0};
  SyntheticResult result;
  const absl::Status status = TrainStatuses(run_, &result)[0];
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("lion"));
  run_.options.optimizer = LionOptions{};
  run_.model.parameters[1].learning_rate_scale = -1;
  EXPECT_THAT(std::string(TrainStatuses(run_, &result)[0].message()), HasSubstr("layer.0.norm"));
}

TEST_F(EngineTest, LossScaleOfAPowerOfTwo_ChangesNoBit) {
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

TEST_F(EngineTest, OverflowedStep_LeavesTheWeightsAndLowersTheScale) {
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
