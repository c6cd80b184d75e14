// Reads and writes state and gradients by shards, between steps and within a step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "collectives/local/local_communicator.h"
#include "geminid/session.h"
#include "tests/client/zero/engine_fixture.h"

namespace geminid::zero {
namespace {

constexpr int64_t kElements = 2048;
constexpr ParameterId kA{0}, kB{1};

// --- between steps, on several ranks -------------------------------------------------------------

absl::Status WriteBackWhatIsRead(Engine* engine, ParameterId id, StateKind kind) {
  for (const ShardRange& range : engine->ShardOf(id)) {
    std::vector<float> values(range.elements);
    absl::Status status = engine->ReadShard(id, kind, range.offset, values);
    if (status.ok()) status = engine->WriteShard(id, kind, range.offset, values);
    if (!status.ok()) return status;
  }
  // This rank may have no elements of a parameter.
  return engine->WriteShard(id, kind, 0, {});
}

TEST_F(EngineTest, ShardsWrittenBackAsTheyWereRead_ChangeNoBit) {
  for (const DataType type : {DataType::kBFloat16, DataType::kFloat32}) {
    run_.options.data_type = type;
    run_.world_size = 2;
    run_.arena_bytes = 640 << 10;
    run_.between_steps = [](Engine* engine, int, int) {
      for (ParameterId id : {kA, kB}) {
        for (StateKind kind : kStateKinds) {
          const absl::Status status = WriteBackWhatIsRead(engine, id, kind);
          EXPECT_TRUE(status.ok()) << status;
        }
      }
    };
    ExpectSameBits(MustTrain().weights, TrainDensely(run_));
  }
}

// --- one rank ------------------------------------------------------------------------------------

absl::Status FillWithOnes(ParameterId, std::span<float> values) {
  std::ranges::fill(values, 1);
  return absl::OkStatus();
}

class EngineValuesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(env_.Start().ok());
    ConnectOptions connect;
    connect.socket = env_.socket();
    connect.device_memory_bytes = 256 << 10;
    auto session = Session::Connect(connect);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
    options_.data_type = DataType::kFloat32;
    options_.chunk_elements = kElements;
    options_.timeout = absl::Seconds(30);
  }

  void MakeEngine() {
    engine_.reset();
    auto engine = Engine::Create(session_.get(), communicator_.get(),
                                 {{.name = "a", .shape = {kElements}},
                                  {.name = "b", .shape = {kElements}, .trainable = false}},
                                 options_);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    ASSERT_TRUE(engine_->Initialize(FillWithOnes).ok());
  }

  // Gives a gradient whose elements are all `value`. Returns the value of the weights before.
  float MicroBatch(float value) {
    EXPECT_TRUE(engine_->BeginMicroBatch().ok());
    auto operation = engine_->Use(Pass::kBackward, std::vector<ParameterId>{kA, kB});
    EXPECT_TRUE(operation.ok()) << operation.status();
    const float weight = *reinterpret_cast<const float*>(operation->Weight(kA)) +
                         10 * *reinterpret_cast<const float*>(operation->Weight(kB));
    std::fill_n(reinterpret_cast<float*>(operation->Gradient(kA)), kElements, value);
    EXPECT_TRUE(operation->GradientWritten(kA).ok());
    return weight;
  }
  StepResult Step(std::optional<double> clip_norm = {}) {
    const auto step = engine_->Step({.learning_rate = 0.1, .clip_norm = clip_norm});
    EXPECT_TRUE(step.ok()) << step.status();
    return step.ok() ? *step : StepResult{};
  }
  std::vector<float> Weights() { return *engine_->ReadParameter(kA); }

  geminid::testing::DaemonEnv env_;
  std::unique_ptr<collectives::Communicator> communicator_ = collectives::MakeSelfCommunicator();
  std::unique_ptr<Session> session_;
  Options options_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineValuesTest, WrittenWeights_AreThoseOfTheNextOperator) {
  MakeEngine();
  for (int step = 0; step < 3; ++step) {
    (void)MicroBatch(1);
    (void)Step();
  }
  std::vector<float> values(kElements);
  ASSERT_TRUE(engine_->ReadShard(kA, StateKind::kMaster, 0, values).ok());
  EXPECT_EQ(values, Weights());
  std::ranges::fill(values, 5);
  ASSERT_TRUE(engine_->WriteShard(kA, StateKind::kMaster, 0, values).ok());
  ASSERT_TRUE(engine_->WriteShard(kB, StateKind::kMaster, 0, values).ok());
  EXPECT_EQ(MicroBatch(1), 55);
  (void)Step();
  EXPECT_EQ(engine_->GetStatistics()->plans_made, 1u);
}

TEST_F(EngineValuesTest, StateReadAndWrittenAgainLater_TakesARunBackToThatStep) {
  MakeEngine();
  const auto train = [this](float gradient) {
    (void)MicroBatch(gradient);
    (void)Step();
  };
  for (float gradient : {1.0f, -2.0f}) train(gradient);
  std::vector<std::vector<float>> state(kStateKinds.size(), std::vector<float>(kElements));
  for (size_t i = 0; i < state.size(); ++i) {
    ASSERT_TRUE(engine_->ReadShard(kA, kStateKinds[i], 0, state[i]).ok());
  }
  const auto progress = engine_->GetProgress();
  ASSERT_TRUE(progress.ok()) << progress.status();
  std::vector<std::vector<float>> ends;
  for (int time = 0; time < 2; ++time) {
    for (float gradient : {3.0f, 0.5f}) train(gradient);
    ends.push_back(Weights());
    for (size_t i = 0; i < state.size(); ++i) {
      ASSERT_TRUE(engine_->WriteShard(kA, kStateKinds[i], 0, state[i]).ok());
    }
    ASSERT_TRUE(engine_->Restore(*progress).ok());
    EXPECT_EQ(engine_->GetProgress()->step, 2u);
  }
  EXPECT_EQ(ends[0], ends[1]);
  EXPECT_NE(ends[0], Weights());
}

// Reads all state between steps, with gradients, and after their norm is known.
TEST_F(EngineValuesTest, StateReadWithinAStep_IsThatOfTheLastStepAndChangesNoBit) {
  options_.accumulate = 2;
  const auto all = [this] {
    std::vector<std::vector<float>> state;
    for (const StateKind kind : kStateKinds) {
      state.emplace_back(kElements);
      EXPECT_EQ(engine_->ReadShard(kA, kind, 0, state.back()), absl::OkStatus());
    }
    const auto progress = engine_->GetProgress();
    EXPECT_TRUE(progress.ok()) << progress.status();
    state.push_back({static_cast<float>(progress->step), static_cast<float>(progress->updates)});
    return state;
  };
  std::vector<std::vector<float>> ends;
  for (const bool reads : {false, true}) {
    MakeEngine();
    for (const float gradient : {1.0f, -2.0f, 0.5f}) {
      const auto last = all();
      (void)MicroBatch(gradient);
      if (reads) {
        EXPECT_EQ(all(), last) << "with gradients";
      }
      (void)MicroBatch(gradient);
      ASSERT_TRUE(engine_->GradientNorm().ok());
      if (reads) {
        EXPECT_EQ(all(), last) << "with their norm";
      }
      (void)Step();
      EXPECT_NE(all(), last);
    }
    ends.push_back(Weights());
  }
  EXPECT_EQ(ends[0], ends[1]);
}

TEST_F(EngineValuesTest, StateWithinAStepThatUpdatesInItsBackwardPass_IsRefusedWithTheReason) {
  options_.update = UpdateTime::kInBackward;
  options_.clip_norm = 0;
  MakeEngine();
  ASSERT_TRUE(engine_->BeginStep({.learning_rate = 0.1}).ok());
  (void)MicroBatch(1);
  std::vector<float> values(kElements);
  const absl::Status refused = engine_->ReadShard(kA, StateKind::kExpAvg, 0, values);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("UpdateTime::kInBackward"));
  EXPECT_TRUE(absl::IsFailedPrecondition(engine_->GetProgress().status()));
  (void)Step();
  EXPECT_EQ(engine_->ReadShard(kA, StateKind::kExpAvg, 0, values), absl::OkStatus());
}

TEST_F(EngineValuesTest, Shards_AreNotWrittenWithinAStepNorReadOutsideTheirRange) {
  MakeEngine();
  (void)MicroBatch(1);
  std::vector<float> values(kElements, 7);
  EXPECT_TRUE(absl::IsFailedPrecondition(engine_->WriteShard(kA, StateKind::kMaster, 0, values)));
  EXPECT_TRUE(absl::IsFailedPrecondition(engine_->ReadGradient(kA, 0, values)));
  (void)Step();
  const std::vector<float> before = Weights();
  EXPECT_TRUE(absl::IsInvalidArgument(engine_->WriteShard(kA, StateKind::kMaster, 1, values)));
  EXPECT_TRUE(absl::IsInvalidArgument(engine_->ReadShard(kB, StateKind::kExpAvg, 0, values)));
  EXPECT_EQ(Weights(), before);
}

TEST_F(EngineValuesTest, Gradients_AreReadAsTheyWillBeClippedAndWrittenBeforeTheStep) {
  options_.accumulate = 2;
  options_.loss_scale = FixedLossScale(4);
  for (const bool accumulates : {true, false}) {
    options_.accumulate = accumulates ? 2 : 1;
    MakeEngine();
    (void)MicroBatch(4 * 3);
    if (accumulates) (void)MicroBatch(4 * 5);
    const float mean = accumulates ? 4 : 3;
    const double elements = std::sqrt(double{kElements});
    EXPECT_DOUBLE_EQ(*engine_->GradientNorm(), mean * elements);
    std::vector<float> values(kElements);
    ASSERT_TRUE(engine_->ReadGradient(kA, 0, values).ok());
    EXPECT_EQ(values, std::vector<float>(kElements, mean));
    std::ranges::fill(values, 0.5f);
    ASSERT_TRUE(engine_->WriteGradient(kA, 0, values).ok());
    EXPECT_DOUBLE_EQ(*engine_->GradientNorm(), 0.5 * elements);
    ASSERT_TRUE(engine_->WriteGradient(kA, 0, std::span(values).first(kElements / 2)).ok());
    EXPECT_DOUBLE_EQ(Step(0).gradient_norm, 0.5 * elements);
    const std::vector<float> written = Weights();

    MakeEngine();
    (void)MicroBatch(4 * 0.5f);
    if (accumulates) (void)MicroBatch(4 * 0.5f);
    (void)Step(0);
    EXPECT_EQ(Weights(), written);
  }
}

TEST_F(EngineValuesTest, GradientsOfFrozenParameters_AreRefused) {
  MakeEngine();
  (void)MicroBatch(1);
  ASSERT_TRUE(engine_->GradientNorm().ok());
  std::vector<float> values(kElements);
  EXPECT_TRUE(absl::IsFailedPrecondition(engine_->ReadGradient(kB, 0, values)));
  EXPECT_TRUE(absl::IsInvalidArgument(engine_->WriteGradient(kA, 1, values)));
  EXPECT_TRUE(absl::IsInvalidArgument(engine_->WriteGradient(ParameterId{9}, 0, values)));
  (void)Step();
}

TEST_F(EngineValuesTest, ClipNormOfAStep_IsInPlaceOfTheOptions) {
  options_.clip_norm = 0;
  MakeEngine();
  (void)MicroBatch(1);
  const double norm = *engine_->GradientNorm();
  EXPECT_TRUE(
      absl::IsInvalidArgument(engine_->Step({.learning_rate = 0.1, .clip_norm = -1}).status()));
  EXPECT_NEAR(Step(norm / 4).clip_coefficient, 0.25, 1e-6);
  (void)MicroBatch(1);
  EXPECT_EQ(Step().clip_coefficient, 1);
}

TEST_F(EngineValuesTest, SecondEngineOfASession_IsRefusedWhileTheFirstLives) {
  MakeEngine();
  const auto other = collectives::MakeSelfCommunicator();
  const auto second =
      Engine::Create(session_.get(), other.get(), {{.name = "c", .shape = {kElements}}}, options_);
  EXPECT_TRUE(absl::IsFailedPrecondition(second.status())) << second.status();
  (void)MicroBatch(1);
  (void)Step();
  EXPECT_EQ(engine_->GetStatistics()->plans_made, 1u);
}

TEST_F(EngineValuesTest, EngineThatEnds_LeavesItsMemoryToTheNextOne) {
  std::vector<std::vector<float>> weights;
  for (const StatePlacement state : {StatePlacement::kHost, StatePlacement::kDevice}) {
    options_.state_placement = state;
    for (int time = 0; time < 2; ++time) {
      MakeEngine();
      EXPECT_EQ(*session_->HostBytes() > 0, state == StatePlacement::kHost);
      for (int step = 0; step < 3; ++step) {
        (void)MicroBatch(1);
        (void)Step();
      }
      weights.push_back(Weights());
      engine_.reset();
      const auto use = session_->GetMemoryUse();
      ASSERT_TRUE(use.ok()) << use.status();
      EXPECT_EQ(use->host_bytes, 0u);
      EXPECT_EQ(use->device_bytes, 0u);
    }
  }
  for (const auto& again : weights) EXPECT_EQ(again, weights[0]);
}

}  // namespace
}  // namespace geminid::zero
