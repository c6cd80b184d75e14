// ZeRO's stages: the bits are the same, but the traffic and the device's contents differ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "geminid/communicator.h"
#include "geminid/session.h"
#include "tests/client/zero/engine/step_bytes_fixture.h"
#include "tests/client/zero/engine_fixture.h"

namespace geminid::zero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Holds the largest tensor and its gradient beside the activations, but not all weights.
constexpr uint64_t kTightForGradients = 384 << 10;

class EngineStagesTest : public StepBytesTest {
 protected:
  void SetUp() override {
    StepBytesTest::SetUp();
    run_.arena_bytes = kAmpleArena;
    run_.options.stage = Stage::kGradients;
  }
};

TEST_F(EngineStagesTest, SecondStageOnAnyArena_GivesTheBitsOfDenseTraining) {
  for (int world_size : {1, 2, 3}) {
    for (int accumulate : {1, 3}) {
      run_.world_size = world_size;
      run_.options.accumulate = accumulate;
      const std::vector<std::vector<float>> expected = TrainDensely(run_);
      for (auto [placement, arena] :
           {std::pair{Placement::kAuto, kTightForGradients},
            std::pair{Placement::kAuto, 2 * kTightForGradients},
            std::pair{Placement::kAuto, kAmpleArena}, std::pair{Placement::kDevice, kAmpleArena}}) {
        SCOPED_TRACE(::testing::Message()
                     << "world " << world_size << ", accumulate " << accumulate << ", placement "
                     << static_cast<int>(placement) << ", arena " << arena);
        run_.options.placement = placement;
        run_.arena_bytes = arena;
        ExpectSameBits(MustTrain().weights, expected);
      }
    }
  }
}

TEST_F(EngineStagesTest, SecondStageWithStateAnywhere_GivesTheBitsOfDenseTraining) {
  run_.world_size = 2;
  run_.options.accumulate = 2;
  const std::vector<std::vector<float>> expected = TrainDensely(run_);
  for (auto [placement, share] :
       {std::pair{StatePlacement::kAuto, 0.0}, std::pair{StatePlacement::kHost, 0.0},
        std::pair{StatePlacement::kShare, 0.5}, std::pair{StatePlacement::kDevice, 0.0}}) {
    SCOPED_TRACE(static_cast<int>(placement));
    run_.options.state_placement = placement;
    run_.options.state_share = share;
    run_.arena_bytes = placement == StatePlacement::kDevice ? kAmpleArena : 2 << 20;
    const SyntheticResult result = MustTrain();
    ExpectSameBits(result.weights, expected);
    EXPECT_EQ(result.statistics[0].state_chunks_on_device > 0, placement != StatePlacement::kHost);
  }
}

// Per rank, of P: each micro-batch reduces all gradients, which is (P - 1) / P of the model's
// bytes.
TEST_F(EngineStagesTest, SecondStage_ReceivesWeightsOnceAStepAndGradientsInEachMicroBatch) {
  run_.options.state_placement = StatePlacement::kHost;
  for (int world_size : {2, 4}) {
    for (int accumulate : {1, 3}) {
      SCOPED_TRACE(::testing::Message() << "world " << world_size << ", accumulate " << accumulate);
      run_.world_size = world_size;
      run_.options.accumulate = accumulate;
      const StepBytes step = BytesOfAStep();
      const uint64_t ranks = static_cast<uint64_t>(world_size);
      const uint64_t model = ModelBytes(step.after());
      EXPECT_EQ(step.received(),
                (1 + static_cast<uint64_t>(accumulate)) * model * (ranks - 1) / ranks);
      // This rank's shard crosses its link once, for any number of micro-batches.
      EXPECT_EQ(step.to_device(), model / ranks);
      EXPECT_EQ(step.lower_bound(), model / ranks);
      EXPECT_EQ(step.after().planned_transfer_bytes, 0u);
      EXPECT_EQ(step.after().plans_made, 1u);
      EXPECT_GE(step.after().peak_model_bytes, model);
    }
  }
}

// The second stage is compared with this one. If every chunk is dropped after its operator, only
// the last layer's weights are still there, because its backward pass directly follows its forward
// pass.
TEST_F(EngineStagesTest, ThirdStage_ReceivesWeightsTwiceInEachMicroBatchOrOnceWithRoom) {
  constexpr int kLayers = 6;
  UseSquareLayers(kLayers);
  run_.world_size = 2;
  run_.options.accumulate = 3;
  run_.options.state_placement = StatePlacement::kHost;
  const StepBytes second = BytesOfAStep();
  run_.options.stage = Stage::kWeights;
  const StepBytes with_room = BytesOfAStep();
  run_.options.placement = Placement::kCpu;
  const StepBytes without = BytesOfAStep();
  const uint64_t half = ModelBytes(second.after()) / 2;
  const uint64_t layer = half / kLayers;
  EXPECT_EQ(second.received(), half + 3 * half);
  EXPECT_EQ(with_room.received(), 3 * (half + half));
  EXPECT_EQ(without.received(), 3 * (2 * half - layer + half));
}

// Weights without room are kept in host memory, and not gathered again.
TEST_F(EngineStagesTest, SecondStageWithoutRoomForTheWeights_ReceivesNoMore) {
  run_.world_size = 2;
  run_.options.accumulate = 2;
  run_.arena_bytes = kTightForGradients;
  const StepBytes step = BytesOfAStep();
  const uint64_t model = ModelBytes(step.after());
  EXPECT_EQ(step.received(), 3 * model / 2);
  EXPECT_FALSE(step.after().everything_fits);
  EXPECT_LE(step.after().peak_total_bytes, kTightForGradients);
  // Weights moved to the host and back.
  EXPECT_GT(step.after().host_to_device_bytes, kManySteps * model / 2);
}

TEST_F(EngineStagesTest, SecondStageOnTheDeviceAloneWithoutRoom_IsRefusedWithWhatItNeeds) {
  run_.options.placement = Placement::kDevice;
  run_.options.state_placement = StatePlacement::kAuto;
  const uint64_t model = ModelBytes(MustTrain().statistics[0]);
  // The arena has room for all state, but not quite for all weights.
  run_.arena_bytes = 12 * model / 2 + model / 2;
  SyntheticResult none;
  const absl::Status status = TrainStatuses(run_, &none)[0];
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("arena"));
}

class FirstStageTest : public EngineStagesTest {
 protected:
  void SetUp() override {
    EngineStagesTest::SetUp();
    run_.options.stage = Stage::kState;
  }
};

// The reference adds each rank's micro-batches first, and then the ranks.
TEST_F(FirstStageTest, Anywhere_GivesTheBitsOfDenseTraining) {
  run_.options.accumulate = 3;
  for (const DataType type : {DataType::kBFloat16, DataType::kFloat32}) {
    for (const int world_size : {1, 2, 3}) {
      run_.options.data_type = type;
      run_.world_size = world_size;
      const std::vector<std::vector<float>> expected = TrainDensely(run_);
      for (auto [state, arena] : {std::pair{StatePlacement::kHost, uint64_t{2} << 20},
                                  std::pair{StatePlacement::kAuto, kAmpleArena},
                                  std::pair{StatePlacement::kDevice, kAmpleArena}}) {
        SCOPED_TRACE(::testing::Message() << "type " << static_cast<int>(type) << ", world "
                                          << world_size << ", state " << static_cast<int>(state));
        run_.options.state_placement = state;
        run_.arena_bytes = arena;
        ExpectSameBits(MustTrain().weights, expected);
      }
    }
  }
}

TEST_F(FirstStageTest, OfOneMicroBatch_IsTheSecond) {
  run_.world_size = 2;
  const SyntheticResult first = MustTrain();
  ExpectSameBits(first.weights, TrainDensely(run_));
  run_.options.stage = Stage::kGradients;
  const SyntheticResult second = MustTrain();
  EXPECT_EQ(first.statistics[0].received_bytes, second.statistics[0].received_bytes);
  EXPECT_EQ(first.statistics[0].device_state_bytes, second.statistics[0].device_state_bytes);
}

TEST_F(FirstStageTest, OfSeveralMicroBatches_ReceivesWeightsAndGradientsOnceAStep) {
  run_.options.state_placement = StatePlacement::kHost;
  for (const int accumulate : {2, 5}) {
    SCOPED_TRACE(accumulate);
    run_.world_size = 4;
    run_.options.accumulate = accumulate;
    const StepBytes step = BytesOfAStep();
    const uint64_t model = ModelBytes(step.after());
    EXPECT_EQ(step.received(), 2 * model * 3 / 4);
    EXPECT_EQ(step.to_device(), model / 4);
    EXPECT_EQ(step.after().plans_made, 1u);
    // The sums have 4 bytes per element, and the weights 2.
    EXPECT_EQ(step.after().device_state_bytes, 2 * model);
    EXPECT_EQ(step.after().state_chunks_on_device, 0u);
  }
}

// It adds the same numbers as the third stage, in the same order, and rounds nothing.
TEST_F(FirstStageTest, OfOneRankInFloat32_HasTheBitsOfTheThird) {
  run_.options.accumulate = 3;
  run_.options.data_type = DataType::kFloat32;
  const SyntheticResult first = MustTrain();
  run_.options.stage = Stage::kWeights;
  ExpectSameBits(first.weights, MustTrain().weights);
}

// The stages round at different places. The results are close for steps linear in the gradient.
TEST_F(FirstStageTest, OfSeveralMicroBatches_IsCloseToTheThird) {
  run_.world_size = 2;
  run_.options.accumulate = 4;
  run_.options.optimizer = SgdOptions{};
  for (const auto& [type, tolerance] :
       {std::pair{DataType::kFloat32, 1e-7}, std::pair{DataType::kBFloat16, 4e-4}}) {
    run_.options.data_type = type;
    run_.options.stage = Stage::kState;
    const SyntheticResult first = MustTrain();
    run_.options.stage = Stage::kWeights;
    const SyntheticResult third = MustTrain();
    ASSERT_EQ(first.weights.size(), third.weights.size());
    for (size_t p = 0; p < third.weights.size(); ++p) {
      for (size_t i = 0; i < third.weights[p].size(); ++i) {
        ASSERT_NEAR(first.weights[p][i], third.weights[p][i], tolerance);
      }
    }
    for (size_t step = 0; step < third.steps.size(); ++step) {
      EXPECT_NEAR(first.steps[step].gradient_norm, third.steps[step].gradient_norm,
                  1e-3 * third.steps[step].gradient_norm);
    }
  }
}

TEST_F(FirstStageTest, ClippedScaledAndSkipped_CommitsWhatItSays) {
  run_.world_size = 2;
  run_.steps = 5;
  run_.overflow_step = 2;
  run_.options.accumulate = 2;
  run_.options.clip_norm = 20;
  run_.options.optimizer = SgdOptions{};
  run_.options.loss_scale = FixedLossScale(1024);
  const SyntheticResult result = MustTrain();
  const DenseResult dense = RunDensely(run_);
  ASSERT_EQ(result.steps.size(), dense.gradient_norms.size());
  for (size_t step = 0; step < result.steps.size(); ++step) {
    EXPECT_EQ(result.steps[step].overflow, step == 2);
    if (step == 2) continue;
    const double norm = dense.gradient_norms[step];
    EXPECT_NEAR(result.steps[step].gradient_norm, norm, 1e-6 * norm);
    EXPECT_NEAR(result.steps[step].clip_coefficient, 20 / norm, 1e-6);
  }
  for (size_t p = 0; p < dense.weights.size(); ++p) {
    for (size_t i = 0; i < dense.weights[p].size(); ++i) {
      ASSERT_NEAR(result.weights[p][i], dense.weights[p][i], 1e-6);
    }
  }
}

TEST_F(FirstStageTest, WithoutRoomForSums_IsRefusedWithWhatTheyNeed) {
  run_.options.accumulate = 2;
  run_.arena_bytes = kTightForGradients;
  SyntheticResult none;
  const absl::Status status = TrainStatuses(run_, &none)[0];
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("sums of gradients on the device"), HasSubstr("use stage 2")));
}

// One rank and one parameter. All elements of a gradient are equal.
class FirstStageCallsTest : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    ConnectOptions connect;
    connect.socket = env_.socket();
    connect.device_memory_bytes = kAmpleArena;
    session_ = *Session::Connect(connect);
    Options options;
    options.stage = Stage::kState;
    options.accumulate = 2;
    options.clip_norm = 0;
    options.data_type = DataType::kFloat32;
    engine_ = *Engine::Create(session_.get(), communicator_.get(),
                              {{.name = "w", .shape = {kElements}}}, options);
  }

  void MicroBatch(float gradient) {
    ASSERT_EQ(engine_->BeginMicroBatch(), absl::OkStatus());
    auto operation = engine_->Use(Pass::kBackward, std::vector<ParameterId>{kWeight});
    ASSERT_TRUE(operation.ok()) << operation.status();
    EXPECT_FALSE(operation->GradientAccumulates(kWeight));
    auto* const to = reinterpret_cast<float*>(session_->HostAddress(operation->Gradient(kWeight)));
    std::fill(to, to + kElements, gradient);
    ASSERT_EQ(operation->GradientWritten(kWeight), absl::OkStatus());
    ASSERT_EQ(operation->Finish(), absl::OkStatus());
  }

  static constexpr int64_t kElements = 1000;
  static constexpr ParameterId kWeight{0};
  std::unique_ptr<collectives::Communicator> communicator_ = collectives::MakeSelfCommunicator();
  std::unique_ptr<Session> session_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(FirstStageCallsTest, FewerOrMoreMicroBatches_AreRefusedAndTheStepGoesOn) {
  MicroBatch(2);
  const absl::Status early = engine_->Step({.learning_rate = 1}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(early)) << early;
  EXPECT_THAT(std::string(early.message()), HasSubstr("after 1 micro-batches of 2"));
  EXPECT_TRUE(absl::IsFailedPrecondition(engine_->GradientNorm().status()));
  MicroBatch(4);
  EXPECT_TRUE(absl::IsFailedPrecondition(engine_->BeginMicroBatch()));
  EXPECT_TRUE(engine_->Step({.learning_rate = 1}).ok());
}

TEST_F(FirstStageCallsTest, GradientOfAStepGivenUp_IsInNoSum) {
  MicroBatch(100);
  ASSERT_EQ(engine_->CancelMicroBatch(), absl::OkStatus());
  MicroBatch(2);
  MicroBatch(4);
  const absl::StatusOr<double> norm = engine_->GradientNorm();
  ASSERT_TRUE(norm.ok()) << norm.status();
  EXPECT_DOUBLE_EQ(*norm, 3 * std::sqrt(kElements));
  std::vector<float> gradient(kElements);
  ASSERT_EQ(engine_->ReadGradient(kWeight, 0, gradient), absl::OkStatus());
  EXPECT_THAT(gradient, ::testing::Each(3.0f));
}

TEST_F(EngineStagesTest, OptionsThatContradictTheStage_AreRefused) {
  const auto refused = [this] {
    SyntheticResult none;
    const absl::Status status = TrainStatuses(run_, &none)[0];
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  run_.options.placement = Placement::kCpu;
  EXPECT_THAT(refused(), AllOf(HasSubstr("stage 2"), HasSubstr("placement cpu")));
  run_.options.placement = Placement::kAuto;
  // NOLINTNEXTLINE(clang-analyzer-optin.core.EnumCastOutOfRange): a caller's mistake
  run_.options.stage = static_cast<Stage>(4);
  EXPECT_THAT(refused(), HasSubstr("no ZeRO stage 4"));
}

TEST_F(EngineStagesTest, ClippedScaledAndSkippedSteps_AreThoseOfTheThirdStage) {
  run_.world_size = 2;
  run_.steps = 5;
  run_.overflow_step = 2;
  run_.options.accumulate = 2;
  run_.options.clip_norm = 0.5;
  run_.options.loss_scale = LossScalerOptions{};
  const SyntheticResult second = MustTrain();
  run_.options.stage = Stage::kWeights;
  const SyntheticResult third = MustTrain();
  ExpectSameBits(second.weights, third.weights);
  ASSERT_EQ(second.steps.size(), third.steps.size());
  for (size_t step = 0; step < third.steps.size(); ++step) {
    EXPECT_EQ(second.steps[step].overflow, step == 2);
    EXPECT_EQ(second.steps[step].loss_scale, third.steps[step].loss_scale);
    if (step == 2) continue;
    EXPECT_EQ(second.steps[step].gradient_norm, third.steps[step].gradient_norm);
    EXPECT_LT(second.steps[step].clip_coefficient, 1.0);
  }
}

TEST_F(EngineStagesTest, UpdatesInTheBackwardPass_GiveTheBitsOfDenseTraining) {
  run_.world_size = 2;
  run_.options.update = UpdateTime::kInBackward;
  ExpectSameBits(MustTrain().weights, TrainDensely(run_));
}

TEST_F(EngineStagesTest, FrozenParametersOfBothTypes_GiveTheBitsOfDenseTraining) {
  run_.model = MixedModel(DataType::kFloat32);
  run_.model.parameters[2].trainable = false;
  run_.world_size = 2;
  run_.options.accumulate = 2;
  ExpectSameBits(MustTrain().weights, TrainDensely(run_));
}

// Training uses the weights that evaluation gathered after a step. Evaluation never uses older
// ones.
TEST_F(EngineStagesTest, EvaluationBetweenSteps_ChangesNothing) {
  run_.world_size = 2;
  run_.steps = 8;
  run_.between_steps = [this](Engine* engine, int, int) {
    for (const auto& parameters : run_.model.operators) {
      std::vector<ParameterId> ids;
      for (uint32_t parameter : parameters) ids.push_back(ParameterId{parameter});
      absl::StatusOr<Operation> operation = engine->Use(Pass::kEvaluate, ids);
      ASSERT_TRUE(operation.ok()) << operation.status();
    }
  };
  for (const uint64_t arena : {kTightForGradients, kAmpleArena}) {
    run_.arena_bytes = arena;
    ExpectSameBits(MustTrain().weights, TrainDensely(run_));
  }
}

TEST_F(EngineStagesTest, OperatorsInAnotherOrder_AreFollowedAndPlannedAgain) {
  run_.world_size = 2;
  run_.steps = 6;
  run_.options.accumulate = 2;
  run_.operators_at = OperatorsSwappedFrom(3, run_);
  const SyntheticResult result = MustTrain();
  ExpectSameBits(result.weights, TrainDensely(run_));
  EXPECT_EQ(result.statistics[1].plans_made, 2u);
}

}  // namespace
}  // namespace geminid::zero
