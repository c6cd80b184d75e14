// Weights sharded within hosts. The bits are the same, and hosts gather the model from each other
// once per step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/local/local_communicator.h"
#include "geminid/communicator.h"
#include "geminid/session.h"
#include "tests/client/zero/engine/step_bytes_fixture.h"
#include "tests/client/zero/engine_fixture.h"

namespace geminid::zero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kLayers = 6;

class EngineHostShardsTest : public StepBytesTest {
 protected:
  void SetUp() override {
    StepBytesTest::SetUp();
    run_.world_size = 4;
    run_.ranks_per_host = 2;
    run_.arena_bytes = kTightArena;
  }

  std::string Refusal() {
    SyntheticResult none;
    const std::vector<absl::Status> statuses = TrainStatuses(run_, &none);
    for (const absl::Status& status : statuses) {
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    }
    return std::string(statuses[0].message());
  }

  // Runs all operators once, on the present weights.
  void Evaluate(Engine* engine) const {
    for (const auto& parameters : run_.model.operators) {
      std::vector<ParameterId> ids;
      for (uint32_t parameter : parameters) ids.push_back(ParameterId{parameter});
      absl::StatusOr<Operation> operation = engine->Use(Pass::kEvaluate, ids);
      ASSERT_TRUE(operation.ok()) << operation.status();
    }
  }

  // The result of the same run without shards within hosts.
  SyntheticResult WithoutHosts() {
    const int kept = std::exchange(run_.ranks_per_host, 0);
    SyntheticResult result = MustTrain();
    run_.ranks_per_host = kept;
    return result;
  }
};

TEST_F(EngineHostShardsTest, OnAnyArenaAndHosts_GivesTheBitsOfDenseTraining) {
  for (const auto& [world, per_host] : {std::pair{4, 2}, std::pair{3, 1}, std::pair{6, 3}}) {
    for (const int accumulate : {1, 3}) {
      run_.world_size = world;
      run_.ranks_per_host = per_host;
      run_.options.accumulate = accumulate;
      const std::vector<std::vector<float>> expected = TrainDensely(run_);
      for (auto [placement, arena] :
           {std::pair{Placement::kAuto, kTightArena}, std::pair{Placement::kAuto, 2 * kTightArena},
            std::pair{Placement::kCpu, kAmpleArena}, std::pair{Placement::kDevice, kAmpleArena}}) {
        SCOPED_TRACE(::testing::Message()
                     << world << " ranks, " << per_host << " a host, accumulate " << accumulate
                     << ", placement " << static_cast<int>(placement) << ", arena " << arena);
        run_.options.placement = placement;
        run_.arena_bytes = arena;
        const SyntheticResult result = MustTrain();
        ExpectSameBits(result.weights, expected);
        EXPECT_GT(result.statistics[0].host_shard_bytes, 0u);
      }
    }
  }
}

TEST_F(EngineHostShardsTest, WithStateOnTheDevice_GivesTheBitsOfDenseTraining) {
  run_.options.accumulate = 2;
  const std::vector<std::vector<float>> expected = TrainDensely(run_);
  for (const auto& [state, arena] : {std::pair{StatePlacement::kDevice, kAmpleArena},
                                     std::pair{StatePlacement::kShare, uint64_t{2} << 20}}) {
    run_.options.state_placement = state;
    run_.options.state_share = 0.5;
    run_.arena_bytes = arena;
    const SyntheticResult result = MustTrain();
    ExpectSameBits(result.weights, expected);
    EXPECT_GT(result.statistics[0].state_chunks_on_device, 0u);
  }
}

// L ranks on each of N hosts, P together, M bytes of weights, A micro-batches. The first gather
// after an update receives from P - 1 ranks, and all others from L - 1.
TEST_F(EngineHostShardsTest, Step_ReceivesTheModelOnceFromOtherHosts) {
  UseSquareLayers(kLayers);
  run_.arena_bytes = kAmpleArena;
  run_.options.state_placement = StatePlacement::kHost;
  constexpr uint64_t kAccumulate = 3;
  run_.options.accumulate = kAccumulate;
  // With room, each micro-batch gathers once. Without room, the backward pass gathers again, except
  // for the last layer, whose backward pass directly follows its forward pass.
  for (const auto& [placement, gathers] :
       {std::pair{Placement::kAuto, kAccumulate * kLayers},
        std::pair{Placement::kCpu, kAccumulate * (2 * kLayers - 1)}}) {
    for (const uint64_t here : {1u, 2u}) {
      SCOPED_TRACE(::testing::Message() << gathers << " gathers, " << here << " ranks a host");
      run_.options.placement = placement;
      run_.ranks_per_host = static_cast<int>(here);
      const StepBytes step = BytesOfAStep();
      const uint64_t model = ModelBytes(step.after());
      const uint64_t layer = model / kLayers;
      const uint64_t within = (gathers - kLayers) * layer * (here - 1) / here;
      const uint64_t gradients = kAccumulate * model * 3 / 4;
      EXPECT_EQ(step.within_host(), within);
      EXPECT_EQ(step.received(), model * 3 / 4 + within + gradients);
      EXPECT_EQ(step.after().host_shard_bytes, model / here);
      EXPECT_EQ(step.gathered_of(2), model / 4);
      EXPECT_EQ(step.gathered_of(3), model / 4);
      EXPECT_EQ(step.gathered_of(1), model / 4 + (here == 1 ? 0 : within));
      // This rank's shard over all ranks, and its shard within the host for each gather there.
      EXPECT_EQ(step.to_device(), model / 4 + (gathers - kLayers) * layer / here);
      EXPECT_LE(step.lower_bound(), step.to_device());
    }
    run_.ranks_per_host = 0;
    const StepBytes third = BytesOfAStep();
    EXPECT_EQ(third.gathered_of(2), gathers * ModelBytes(third.after()) / kLayers / 4);
  }
}

// Evaluation and training use each other's gathered weights.
TEST_F(EngineHostShardsTest, EvaluationBetweenSteps_ReceivesNothingMoreFromOtherHosts) {
  UseSquareLayers(kLayers);
  run_.arena_bytes = kAmpleArena;
  run_.options.placement = Placement::kCpu;
  run_.options.state_placement = StatePlacement::kHost;
  run_.between_steps = [this](Engine* engine, int, int) {
    Evaluate(engine);
    Evaluate(engine);
  };
  const StepBytes step = BytesOfAStep();
  EXPECT_EQ(step.gathered_of(2), ModelBytes(step.after()) / 4);
  // The number depends on the plans of evaluation, which depend on measured times.
  EXPECT_GT(step.after().received_within_host_bytes, kManySteps * ModelBytes(step.after()));
  ExpectSameBits(MustTrain().weights, TrainDensely(run_));
}

TEST_F(EngineHostShardsTest, FrozenWeights_AreReceivedFromOtherHostsOnce) {
  UseSquareLayers(kLayers);
  for (Parameter& parameter : run_.model.parameters) parameter.trainable = false;
  run_.model.parameters[0].trainable = true;
  run_.options.placement = Placement::kCpu;
  const StepBytes step = BytesOfAStep();
  EXPECT_EQ(step.gathered_of(2), ModelBytes(step.after()) / kLayers / 4);
  ExpectSameBits(MustTrain().weights, TrainDensely(run_));
}

TEST_F(EngineHostShardsTest, ClippedScaledAndSkippedSteps_AreThoseWithout) {
  run_.steps = 5;
  run_.overflow_step = 2;
  run_.options.accumulate = 2;
  run_.options.clip_norm = 0.5;
  run_.options.loss_scale = LossScalerOptions{};
  const SyntheticResult result = MustTrain();
  const SyntheticResult expected = WithoutHosts();
  ExpectSameBits(result.weights, expected.weights);
  for (size_t step = 0; step < expected.steps.size(); ++step) {
    EXPECT_EQ(result.steps[step].overflow, step == 2);
    if (step == 2) continue;
    EXPECT_EQ(result.steps[step].gradient_norm, expected.steps[step].gradient_norm);
  }
}

TEST_F(EngineHostShardsTest, UpdatesInTheBackwardPass_GiveTheBitsOfDenseTraining) {
  run_.options.update = UpdateTime::kInBackward;
  ExpectSameBits(MustTrain().weights, TrainDensely(run_));
}

TEST_F(EngineHostShardsTest, BothTypesAtStableAddresses_GiveTheBitsOfDenseTraining) {
  run_.model = MixedModel(DataType::kFloat32);
  run_.model.parameters[2].trainable = false;
  run_.arena_bytes = 2 * kTightArena;
  run_.options.accumulate = 2;
  run_.options.stable_addresses = true;
  ExpectSameBits(MustTrain().weights, TrainDensely(run_));
}

TEST_F(EngineHostShardsTest, OperatorsInAnotherOrder_AreFollowedAndPlannedAgain) {
  run_.steps = 6;
  run_.arena_bytes = 2 * kTightArena;
  run_.options.accumulate = 2;
  run_.operators_at = OperatorsSwappedFrom(3, run_);
  const SyntheticResult result = MustTrain();
  ExpectSameBits(result.weights, TrainDensely(run_));
  EXPECT_GE(result.statistics[1].plans_made, 2u);
}

// The earlier evaluation has filled every host's shards.
TEST_F(EngineHostShardsTest, WeightsThatAreWritten_AreWhatIsGatheredNext) {
  run_.options.accumulate = 2;
  const auto write = [](Engine* engine, ParameterId id) {
    for (const ShardRange& range : engine->ShardOf(id)) {
      std::vector<float> values(range.elements);
      ASSERT_EQ(engine->ReadShard(id, StateKind::kMaster, range.offset, values), absl::OkStatus());
      for (float& value : values) value = 1 - value;
      ASSERT_EQ(engine->WriteShard(id, StateKind::kMaster, range.offset, values), absl::OkStatus());
    }
  };
  run_.between_steps = [&](Engine* engine, int, int step) {
    Evaluate(engine);
    if (step != 1) return;
    for (uint32_t id = 0; id < run_.model.parameters.size(); ++id) write(engine, ParameterId{id});
    Evaluate(engine);
    absl::StatusOr<Progress> progress = engine->GetProgress();
    ASSERT_TRUE(progress.ok()) << progress.status();
    ASSERT_EQ(engine->Restore(*progress), absl::OkStatus());
  };
  const SyntheticResult expected = WithoutHosts();
  ExpectSameBits(MustTrain().weights, expected.weights);
  run_.between_steps = nullptr;
  const SyntheticResult unwritten = WithoutHosts();
  EXPECT_NE(unwritten.weights, expected.weights) << "or nothing was written";
}

TEST_F(EngineHostShardsTest, HostsThatCannotBe_AreRefusedOnAllRanks) {
  run_.world_size = 3;
  EXPECT_THAT(Refusal(),
              AllOf(HasSubstr("have 1 to 2; start"), HasSubstr("as many ranks on each host")));
  run_.world_size = 2;
  EXPECT_THAT(Refusal(), HasSubstr("one host has no traffic between hosts to save"));
}

TEST_F(EngineHostShardsTest, StageInWhichWeightsStayWhole_IsRefused) {
  run_.options.stage = Stage::kGradients;
  SyntheticResult none;
  const std::vector<absl::Status> statuses = TrainStatuses(run_, &none);
  EXPECT_TRUE(std::ranges::any_of(statuses, absl::IsInvalidArgument));
  for (const absl::Status& status : statuses) {  // its own message, or another rank's
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("stage 2"), HasSubstr("use stage 3")));
  }
}

// Four ranks on two hosts. Their engines have two parameters of one chunk each.
class HostShardsCallsTest : public EngineTest {
 protected:
  static constexpr int kRanks = 4;
  static constexpr int kRanksPerHost = 2;
  static constexpr int64_t kElements = 2048;
  static constexpr uint64_t kWeightBytes = 2 * kElements * sizeof(float);
  static constexpr ParameterId kA{0}, kB{1};

  struct Rank {
    int number = 0;
    Session* session = nullptr;
    std::unique_ptr<Engine> engine;
    std::unique_ptr<collectives::Communicator> host;

    absl::Status Use(ParameterId id) const {
      return engine->Use(Pass::kForward, std::vector<ParameterId>{id}).status();
    }
  };

  static std::vector<Parameter> TwoChunks() {
    return {{.name = "a", .shape = {kElements}}, {.name = "b", .shape = {kElements}}};
  }

  // Runs each rank on a thread of its own.
  void OnAllRanks(const std::function<void(Rank&)>& act,
                  const std::vector<Parameter>& parameters = TwoChunks(),
                  uint64_t arena_bytes = 64 << 10) const {
    auto communicators = collectives::MakeLocalCommunicators(kRanks);
    std::vector<std::thread> threads;
    for (int number = 0; number < kRanks; ++number) {
      threads.emplace_back([&, number] {
        collectives::Communicator& all = *communicators[static_cast<size_t>(number)];
        ConnectOptions connect;
        connect.socket = env_.socket();
        connect.device_memory_bytes = arena_bytes;
        connect.rank = connect.local_rank = number;
        connect.world_size = kRanks;
        auto session = Session::Connect(connect);
        ASSERT_TRUE(session.ok()) << session.status();
        const int first = number - number % kRanksPerHost;
        auto host = all.Subset("host", std::vector<int>{first, first + 1});
        ASSERT_TRUE(host.ok()) << host.status();
        Options options;
        options.data_type = DataType::kFloat32;
        options.chunk_elements = kElements;
        options.state_placement = StatePlacement::kHost;
        options.host_ranks = host->get();
        options.accumulate = 2;
        auto engine = Engine::Create(session->get(), &all, parameters, options);
        ASSERT_TRUE(engine.ok()) << engine.status();
        Rank rank{number, session->get(), *std::move(engine), *std::move(host)};
        act(rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

TEST_F(HostShardsCallsTest, WhatHostsKeep_IsInTheLedgerWhileTheEngineIsThere) {
  OnAllRanks([](Rank& rank) {
    constexpr auto kGeneric = static_cast<size_t>(ChunkKind::kGeneric);
    const absl::StatusOr<MemoryUse> use = rank.session->GetMemoryUse();
    ASSERT_TRUE(use.ok()) << use.status();
    EXPECT_EQ(use->host_bytes_by_kind[kGeneric], kWeightBytes / kRanksPerHost);
    const absl::StatusOr<Statistics> statistics = rank.engine->GetStatistics();
    ASSERT_TRUE(statistics.ok()) << statistics.status();
    EXPECT_EQ(statistics->host_shard_bytes, kWeightBytes / kRanksPerHost);
    EXPECT_EQ(statistics->host_bytes, use->host_bytes);
    rank.engine.reset();
    EXPECT_EQ(rank.session->HostBytes().value(), 0u);
  });
}

// Its host waits for it in a gather within the host, and the other host in a gather of all ranks.
TEST_F(HostShardsCallsTest, RankThatStops_IsNamedOnItsHostAndOnTheOther) {
  OnAllRanks([](Rank& rank) {
    ASSERT_EQ(rank.engine->BeginMicroBatch(), absl::OkStatus());
    ASSERT_EQ(rank.Use(kA), absl::OkStatus());
    ASSERT_EQ(rank.Use(kB), absl::OkStatus());
    if (rank.number == 1) return rank.engine.reset();
    absl::Status status = rank.Use(kA);
    if (status.ok()) {
      EXPECT_GE(rank.number, kRanksPerHost) << "rank 1 did not come";
      ASSERT_EQ(rank.engine->CancelMicroBatch(), absl::OkStatus());
      status = rank.engine->ReadParameter(kA).status();
    }
    EXPECT_TRUE(absl::IsAborted(status)) << rank.number << ": " << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("rank 1: stopped in the middle of a step"));
  });
}

// The gradient of a chunk's first half replaces its weights, and this chunk fills the arena.
// Weights that are gathered meanwhile go to host memory, first over all ranks and then within the
// host.
class HostShardsWithoutRoomTest : public HostShardsCallsTest {
 protected:
  static constexpr ParameterId kFirstHalf{0}, kSecondHalf{1}, kOther{2};
  static constexpr uint64_t kRoomForOneChunk = kElements * sizeof(float) + 4096;

  static std::vector<Parameter> Halves() {
    return {{.name = "first half", .shape = {kElements / 2}},
            {.name = "second half", .shape = {kElements / 2}},
            {.name = "other", .shape = {kElements}}};
  }

  // Checks that the operator has these weights. In a backward pass it gives a gradient of ones.
  static void UseAndCheck(const Rank& rank, Pass pass, ParameterId id,
                          const std::vector<float>& expected) {
    auto operation = rank.engine->Use(pass, std::vector<ParameterId>{id});
    ASSERT_TRUE(operation.ok()) << operation.status();
    const auto* weights =
        reinterpret_cast<const float*>(rank.session->HostAddress(operation->Weight(id)));
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), weights))
        << "rank " << rank.number << ", parameter " << static_cast<uint32_t>(id);
    if (pass != Pass::kBackward) return;
    auto* const gradient =
        reinterpret_cast<float*>(rank.session->HostAddress(operation->Gradient(id)));
    std::fill(gradient, gradient + expected.size(), 1.0f);
    ASSERT_EQ(operation->GradientWritten(id), absl::OkStatus());
  }
};

TEST_F(HostShardsWithoutRoomTest, WhatIsGatheredToHostMemory_IsTheWeights) {
  const auto act = [](Rank& rank) {
    ASSERT_EQ(rank.engine->Initialize([](ParameterId id, std::span<float> values) {
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(static_cast<uint32_t>(id) * 10000 + i);
      }
      return absl::OkStatus();
    }),
              absl::OkStatus());
    for (int step = 0; step < 3; ++step) {
      std::vector<std::vector<float>> weights;
      for (const ParameterId id : {kFirstHalf, kSecondHalf, kOther}) {
        weights.push_back(rank.engine->ReadParameter(id).value());
      }
      for (int micro = 0; micro < 2; ++micro) {
        ASSERT_EQ(rank.engine->BeginMicroBatch(), absl::OkStatus());
        UseAndCheck(rank, Pass::kBackward, kFirstHalf, weights[0]);
        UseAndCheck(rank, Pass::kForward, kOther, weights[2]);
        UseAndCheck(rank, Pass::kForward, kSecondHalf, weights[1]);
        UseAndCheck(rank, Pass::kForward, kOther, weights[2]);
        UseAndCheck(rank, Pass::kBackward, kSecondHalf, weights[1]);
        UseAndCheck(rank, Pass::kForward, kOther, weights[2]);
        UseAndCheck(rank, Pass::kBackward, kOther, weights[2]);
      }
      ASSERT_TRUE(rank.engine->Step({.learning_rate = 0.5}).ok());
    }
    const absl::StatusOr<Statistics> statistics = rank.engine->GetStatistics();
    ASSERT_TRUE(statistics.ok()) << statistics.status();
    EXPECT_GT(statistics->received_within_host_bytes, 0u);
  };
  OnAllRanks(act, Halves(), kRoomForOneChunk);
}

}  // namespace
}  // namespace geminid::zero
