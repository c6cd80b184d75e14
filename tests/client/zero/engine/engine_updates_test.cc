// Updates in the backward pass: the bits of updates after the step, without room for gradients.
// Also the operations that such a step cannot have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "client/src/session_internal.h"
#include "client/zero/basics/layout.h"
#include "client/zero/residency/diverged.h"
#include "collectives/local/local_communicator.h"
#include "geminid/session.h"
#include "proto/shm/commit_layout.h"
#include "tests/client/zero/engine_fixture.h"

namespace geminid::zero {
namespace {

using ::testing::HasSubstr;

// --- the synthetic model -------------------------------------------------------------------------

class BackwardUpdatesTest : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    run_.options.update = UpdateTime::kInBackward;
  }
};

TEST_F(BackwardUpdatesTest, EveryPlacementArenaAndWorldSize_GivesTheBitsOfDenseTraining) {
  for (int world_size : {1, 2, 3}) {
    run_.world_size = world_size;
    const std::vector<std::vector<float>> expected = TrainDensely(run_);
    for (auto [placement, arena] :
         {std::pair{Placement::kAuto, kTightArena}, std::pair{Placement::kAuto, kAmpleArena},
          std::pair{Placement::kCpu, kTightArena}, std::pair{Placement::kDevice, kAmpleArena}}) {
      SCOPED_TRACE(::testing::Message() << "world " << world_size << ", placement "
                                        << static_cast<int>(placement) << ", arena " << arena);
      run_.options.placement = placement;
      run_.arena_bytes = arena;
      ExpectSameBits(MustTrain().weights, expected);
    }
  }
}

TEST_F(BackwardUpdatesTest, EveryStatePlacement_GivesTheBitsOfDenseTraining) {
  run_.arena_bytes = 1 << 20;
  run_.world_size = 2;
  run_.steps = 6;
  run_.options.update_threads = 2;
  const std::vector<std::vector<float>> expected = TrainDensely(run_);
  for (double share : {0.0, 0.3, 1.0}) {
    SCOPED_TRACE(::testing::Message() << "share " << share);
    run_.options.state_placement = share == 0 ? StatePlacement::kHost : StatePlacement::kShare;
    run_.options.state_share = share;
    ExpectSameBits(MustTrain().weights, expected);
  }
}

TEST_F(BackwardUpdatesTest, ElementwiseOptimizersAndFp32_GiveTheBitsOfDenseTraining) {
  run_.world_size = 2;
  run_.arena_bytes = 2 * kTightArena;
  for (const Optimizer& optimizer :
       {Optimizer(LionOptions{.weight_decay = 0.1}), Optimizer(SgdOptions{.momentum = 0.9})}) {
    SCOPED_TRACE(Name(optimizer));
    run_.options.optimizer = optimizer;
    run_.options.data_type = DataType::kFloat32;
    ExpectSameBits(MustTrain().weights, TrainDensely(run_));
  }
}

TEST_F(BackwardUpdatesTest, SeparateGradientsAndFrozenParameters_GiveTheBitsOfDenseTraining) {
  run_.world_size = 2;
  run_.arena_bytes = 2 * kTightArena;
  run_.model.parameters[4].separate_gradient = true;  // layer.0.down
  run_.model.parameters[2].trainable = false;         // layer.0.up
  ExpectSameBits(MustTrain().weights, TrainDensely(run_));
}

// Per rank, for G granules of g elements: 12 (G + 1) g bytes, and two landing places of 2 g bytes.
TEST_F(BackwardUpdatesTest, HostMemory_IsStateAndOneSpareAndTwoLandingPlaces) {
  run_.options.state_placement = StatePlacement::kHost;
  std::vector<TensorShape> shapes;
  for (const Parameter& parameter : run_.model.parameters) {
    uint64_t elements = 1;
    for (int64_t dimension : parameter.shape) elements *= static_cast<uint64_t>(dimension);
    shapes.push_back({elements, true});
  }
  for (int world_size : {1, 2}) {
    run_.world_size = world_size;
    const Layout layout = *MakeLayout(
        shapes, {.world_size = world_size, .chunk_elements = run_.options.chunk_elements});
    const uint64_t g = layout.chunks.front().granule_elements;  // all are of one type
    const uint64_t state = 12 * (layout.granules + 1) * g;
    run_.options.update = UpdateTime::kInBackward;
    for (const Statistics& rank : MustTrain().statistics) {
      EXPECT_EQ(rank.host_bytes, state + 2 * 2 * g);
    }
    run_.options.update = UpdateTime::kAfterStep;
    for (const Statistics& rank : MustTrain().statistics) {
      EXPECT_EQ(rank.host_bytes, state + 2 * layout.granules * g);
    }
  }
}

TEST_F(BackwardUpdatesTest, GradientThatIsNotFinite_EndsAllRanksNamingTheParameter) {
  run_.world_size = 2;
  run_.overflow_step = 1;
  for (Placement placement : {Placement::kAuto, Placement::kDevice}) {
    run_.options.placement = placement;
    SyntheticResult result;
    const std::vector<absl::Status> statuses = TrainStatuses(run_, &result);
    EXPECT_EQ(result.steps.size(), 1u);
    EXPECT_EQ(std::ranges::count_if(
                  statuses, [](const absl::Status& status) { return absl::IsDataLoss(status); }),
              1);
    for (const absl::Status& status : statuses) {
      EXPECT_THAT(std::string(status.message()), HasSubstr("a gradient is not finite"));
      EXPECT_THAT(std::string(status.message()), HasSubstr("'embedding'"));
      EXPECT_THAT(std::string(status.message()), HasSubstr("last checkpoint"));
    }
  }
}

// --- one rank, call by call ----------------------------------------------------------------------

constexpr int64_t kElements = 2048;
constexpr double kRate = 0.1;
constexpr ParameterId kA{0}, kB{1};

class BackwardUpdateCallsTest : public ::testing::Test {
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
    options_.clip_norm = 0;
    options_.update = UpdateTime::kInBackward;
    options_.timeout = absl::Seconds(30);
  }

  absl::Status Make() {
    engine_.reset();
    auto engine = Engine::Create(session_.get(), communicator_.get(), parameters_, options_);
    if (engine.ok()) engine_ = *std::move(engine);
    return engine.status();
  }

  absl::Status Backward(ParameterId id, float value) {
    auto operation = engine_->Use(Pass::kBackward, std::vector<ParameterId>{id});
    if (!operation.ok()) return operation.status();
    std::fill_n(reinterpret_cast<float*>(operation->Gradient(id)), kElements, value);
    return operation->GradientWritten(id);
  }

  absl::Status Use(Pass pass, ParameterId id) {
    return engine_->Use(pass, std::vector<ParameterId>{id}).status();
  }

  uint64_t EpochOf(uint32_t granule) const {
    const shm::CommitSegment& commit = *CommitSegmentOf(*session_);
    return shm::ChunkVersion::Decode(commit.versions[granule].load()).epoch;
  }
  uint64_t EpochOfRecord() const {
    const shm::CommitRecord* newest = shm::NewestRecord(*CommitSegmentOf(*session_));
    return newest == nullptr ? 0 : newest->epoch;
  }

  geminid::testing::DaemonEnv env_;
  std::unique_ptr<collectives::Communicator> communicator_ = collectives::MakeSelfCommunicator();
  std::unique_ptr<Session> session_;
  std::vector<Parameter> parameters_ = {{.name = "a", .shape = {kElements}},
                                        {.name = "b", .shape = {kElements}}};
  Options options_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(BackwardUpdateCallsTest, WhatNeedsTheWholeGradient_IsRefusedWithTheReason) {
  const Options good = options_;
  const auto expect_refused = [&](const char* why) {
    const absl::Status status = Make();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
    options_ = good;
  };
  options_.clip_norm = 1;
  expect_refused("clipping");
  options_.loss_scale = LossScalerOptions{};
  expect_refused("loss scaling");
  options_.accumulate = 2;
  expect_refused("last micro-batch");
  options_.optimizer = LambOptions{};
  expect_refused("sums over whole tensors");
  parameters_[1].update_without_gradient = false;
  expect_refused("which parameters have no gradient");
}

TEST_F(BackwardUpdateCallsTest, ScaledGradients_AreRefused) {
  ASSERT_TRUE(Make().ok());
  const absl::Status refused = engine_->BeginStep({.learning_rate = 1, .gradient_scale = 2});
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("gradient_scale"));
}

TEST_F(BackwardUpdateCallsTest, StepThatHasNotBegun_IsRefused) {
  ASSERT_TRUE(Make().ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(engine_->BeginMicroBatch()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(engine_->BeginStep({.learning_rate = kRate, .clip_norm = 1})));
  ASSERT_TRUE(engine_->BeginStep({.learning_rate = kRate}).ok());
  ASSERT_TRUE(engine_->BeginMicroBatch().ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(engine_->BeginStep({.learning_rate = kRate})));
  EXPECT_TRUE(absl::IsInvalidArgument(engine_->Step({.learning_rate = 2 * kRate}).status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(engine_->Step({.learning_rate = kRate, .clip_norm = 1}).status()));
  ASSERT_TRUE(engine_->Step({.learning_rate = kRate}).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(engine_->BeginMicroBatch())) << "of the next step";
}

TEST_F(BackwardUpdateCallsTest, StepWithAnUpdate_CannotBeGivenUpAndCanBeCompleted) {
  ASSERT_TRUE(Make().ok());
  ASSERT_TRUE(engine_->BeginStep({.learning_rate = kRate}).ok());
  ASSERT_TRUE(engine_->BeginMicroBatch().ok());
  ASSERT_TRUE(Use(Pass::kForward, kA).ok());
  ASSERT_TRUE(engine_->CancelMicroBatch().ok()) << "nothing was updated yet";
  ASSERT_TRUE(engine_->BeginMicroBatch().ok());
  ASSERT_TRUE(Backward(kA, 1).ok());
  const absl::Status cancelled = engine_->CancelMicroBatch();
  EXPECT_TRUE(absl::IsFailedPrecondition(cancelled)) << cancelled;
  EXPECT_THAT(std::string(cancelled.message()), HasSubstr("of 1 of 2 chunks"));
  ASSERT_TRUE(Backward(kB, 1).ok());
  EXPECT_TRUE(engine_->Step({.learning_rate = kRate}).ok());
}

TEST_F(BackwardUpdateCallsTest, UpdatedParameter_IsNotUsedInItsStep) {
  ASSERT_TRUE(Make().ok());
  ASSERT_TRUE(engine_->BeginStep({.learning_rate = kRate}).ok());
  ASSERT_TRUE(engine_->BeginMicroBatch().ok());
  ASSERT_TRUE(Backward(kA, 1).ok());
  for (Pass pass : {Pass::kForward, Pass::kBackward, Pass::kEvaluate}) {
    const absl::Status used = Use(pass, kA);
    EXPECT_TRUE(absl::IsFailedPrecondition(used)) << used;
    EXPECT_THAT(std::string(used.message()), HasSubstr("'a'"));
  }
  EXPECT_TRUE(Use(Pass::kForward, kB).ok());
  ASSERT_TRUE(engine_->GradientNorm().ok());
  EXPECT_FALSE(Use(Pass::kEvaluate, kB).ok());
  std::vector<float> values(kElements);
  EXPECT_TRUE(absl::IsFailedPrecondition(engine_->ReadGradient(kA, 0, values)));
  EXPECT_TRUE(absl::IsFailedPrecondition(engine_->WriteGradient(kA, 0, values)));
  ASSERT_TRUE(engine_->Step({.learning_rate = kRate}).ok());
  EXPECT_TRUE(Use(Pass::kEvaluate, kA).ok());
}

// A process that finds the segment after a death must see this.
TEST_F(BackwardUpdateCallsTest, GranulesNewerThanTheRecord_TellAStepThatWasNotCompleted) {
  ASSERT_TRUE(Make().ok());
  for (uint64_t epoch : {1u, 2u}) {
    ASSERT_TRUE(engine_->BeginStep({.learning_rate = kRate}).ok());
    ASSERT_TRUE(engine_->BeginMicroBatch().ok());
    ASSERT_TRUE(Backward(kA, 1).ok());
    ASSERT_TRUE(Backward(kB, 2).ok());
    ASSERT_TRUE(engine_->GradientNorm().ok());
    EXPECT_EQ(EpochOf(0), epoch);
    EXPECT_EQ(EpochOf(1), epoch);
    EXPECT_EQ(EpochOfRecord(), epoch - 1);
    ASSERT_TRUE(engine_->Step({.learning_rate = kRate}).ok());
    EXPECT_EQ(EpochOfRecord(), epoch);
  }
}

TEST_F(BackwardUpdateCallsTest, NotFiniteGradient_IsWhatEveryLaterCallReturns) {
  ASSERT_TRUE(Make().ok());
  ASSERT_TRUE(engine_->BeginStep({.learning_rate = kRate}).ok());
  ASSERT_TRUE(engine_->BeginMicroBatch().ok());
  ASSERT_TRUE(Backward(kA, 1).ok());
  ASSERT_TRUE(Backward(kB, std::numeric_limits<float>::quiet_NaN()).ok());
  const absl::Status status = engine_->Step({.learning_rate = kRate}).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_TRUE(HasDiverged(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("'b'"));
  EXPECT_EQ(engine_->BeginMicroBatch(), status);
  EXPECT_EQ(engine_->ReadParameter(kA).status(), status);
  EXPECT_EQ(EpochOfRecord(), 0u);
}

TEST_F(BackwardUpdateCallsTest, EngineThatEndsInTheMiddleOfAStep_Ends) {
  for (int time = 0; time < 20; ++time) {
    ASSERT_TRUE(Make().ok());
    ASSERT_TRUE(engine_->BeginStep({.learning_rate = kRate}).ok());
    ASSERT_TRUE(engine_->BeginMicroBatch().ok());
    ASSERT_TRUE(Backward(kA, 1).ok());
    engine_.reset();
    // After an engine ended within a step, some of its memory stays with the session.
    session_.reset();
    ConnectOptions connect;
    connect.socket = env_.socket();
    connect.device_memory_bytes = 256 << 10;
    session_ = *Session::Connect(connect);
  }
}

}  // namespace
}  // namespace geminid::zero
