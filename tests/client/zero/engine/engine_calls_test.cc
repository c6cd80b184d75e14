// The contract of each of the engine's calls, as an outside trainer makes them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <thread>

#include "client/device/host/host_device.h"
#include "client/src/session_impl.h"
#include "collectives/local/local_communicator.h"
#include "geminid/private_daemon.h"
#include "geminid/session.h"
#include "geminid/zero.h"
#include "tests/base/long_tests.h"
#include "tests/client/device/faulty_device.h"
#include "tests/client/zero/deadline.h"
#include "tests/client/zero/engine/engine_calls_fixture.h"
#include "tests/daemon_env/daemon_env.h"

namespace geminid::zero {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// --- operations ----------------------------------------------------------------------------------

TEST_F(EngineCallsTest, DeviceBytes_AreThoseOfTheChunksEachOnce) {
  constexpr uint64_t kChunk = kElements * sizeof(float);
  std::vector<Parameter> parameters = ThreeParameters();
  parameters[0].separate_gradient = true;
  Make(parameters, SmallChunks());
  const std::vector<ParameterId> none, a = {kA}, b = {kB}, both = {kA, kB}, twice = {kA, kA};
  EXPECT_EQ(engine_().DeviceBytes(none, none), 0u);
  EXPECT_EQ(engine_().DeviceBytes(both, none), 2 * kChunk);
  EXPECT_EQ(engine_().DeviceBytes(twice, none), kChunk);
  EXPECT_EQ(engine_().DeviceBytes(a, a), 2 * kChunk) << "its gradient has a place of its own";
  EXPECT_EQ(engine_().DeviceBytes(b, b), kChunk) << "in the weight's place";
}

TEST_F(EngineCallsTest, OperationHeldOverOthers_TrainsStepAfterStepInATightArena) {
  // The arena has room for two chunks and a little more.
  for (Placement placement : {Placement::kAuto, Placement::kCpu}) {
    Options options = SmallChunks();
    options.placement = placement;
    Make(ThreeParameters(), options, 20 << 10);
    for (int step = 0; step < 5; ++step) {
      ASSERT_TRUE(engine_().BeginMicroBatch().ok());
      {
        auto outer = engine_().Use(Pass::kForward, std::vector<ParameterId>{kA});
        ASSERT_TRUE(outer.ok()) << outer.status();
        const float* weight = reinterpret_cast<const float*>(outer->Weight(kA));
        const float before = weight[7];
        for (ParameterId id : {kB, kC, kB}) {
          const absl::Status status = Forward(engine_(), {id});
          ASSERT_TRUE(status.ok()) << "step " << step << ": " << status;
        }
        EXPECT_EQ(weight[7], before);
        EXPECT_EQ(reinterpret_cast<const float*>(outer->Weight(kA)), weight);
      }
      for (ParameterId id : {kC, kB, kA}) ASSERT_TRUE(Backward(engine_(), id).ok());
      ASSERT_TRUE(engine_().Step({.learning_rate = 0.1}).ok());
    }
    EXPECT_EQ(engine_().GetStatistics()->plans_made, 1u);
  }
}

// Such as activations that the trainer frees after the step, and an expert that no token chose.
TEST_F(EngineCallsTest, WorkspaceHeldWhereAParameterGotNoGradient_IsRefusedAndChangesNothing) {
  constexpr uint64_t kArena = 24 << 10;  // room for no chunk beside the block
  constexpr uint64_t kBlock = 20 << 10;
  std::vector<std::vector<float>> values;
  for (const bool holds : {false, true}) {
    Options options = SmallChunks();
    options.accumulate = 2;
    Make(ThreeParameters(), options, kArena);
    std::optional<Workspace::Block> block;
    const auto hold = [&] {
      if (!holds) return;
      auto made = engine_().workspace().Allocate(kBlock);
      ASSERT_TRUE(made.ok()) << made.status();
      block = *std::move(made);
    };
    const auto refused = [&](const absl::Status& status) {
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("'c' got no gradient"), HasSubstr("nothing has changed")));
    };
    for (const float value : {1.0f, 2.0f}) {
      const absl::Status begun = engine_().BeginMicroBatch();
      if (block.has_value()) {
        refused(begun);
        block.reset();
        ASSERT_TRUE(engine_().BeginMicroBatch().ok());
      } else {
        ASSERT_TRUE(begun.ok()) << begun;
      }
      for (ParameterId id : {kA, kB, kC}) ASSERT_TRUE(Forward(engine_(), {id}).ok());
      for (ParameterId id : {kB, kA}) ASSERT_TRUE(Backward(engine_(), id, value).ok());
      hold();
    }
    if (holds) {
      refused(engine_().GradientNorm().status());
      refused(engine_().Step({.learning_rate = 0.1}).status());
      block.reset();
    }
    const auto norm = engine_().GradientNorm();
    ASSERT_TRUE(norm.ok()) << norm.status();
    EXPECT_FLOAT_EQ(*norm, 1.5f * std::sqrt(2.0f * kElements));
    const auto step = engine_().Step({.learning_rate = 0.1});
    ASSERT_TRUE(step.ok()) << step.status();
    values.push_back(AllValues()[0]);
    MustStep();
    values.push_back(AllValues()[2]);
  }
  EXPECT_EQ(values[0], values[2]);
  EXPECT_EQ(values[1], values[3]);
}

template <typename T>
bool StaysFor(int looks, std::span<T> values, std::remove_const_t<T> value) {
  for (int look = 0; look < looks; ++look) {
    if (std::ranges::count(values, value) != std::ssize(values)) return false;
    std::this_thread::yield();
  }
  return true;
}

// One thread runs operators, and another one takes workspace. The arena has room for a chunk and a
// block, but not for two of each. Contents that either thread overwrites are noticed.
TEST_F(EngineCallsTest, WorkspaceOfAnotherThread_NeverLiesOverWhatAnOperatorHolds) {
  constexpr uint64_t kArena = 24 << 10;
  constexpr uint64_t kLargestBlock = 8 << 10;
  constexpr std::byte kPattern{0xA5};
  constexpr int kLooks = 8;
  Options options = SmallChunks();
  options.stage = Stage::kGradients;  // weights stay until something needs the room
  Make(ThreeParameters(), options, kArena);
  ASSERT_TRUE(engine_().BeginMicroBatch().ok());
  std::atomic<bool> ended = false;
  uint64_t blocks = 0;
  uint64_t blocks_written_over = 0;
  std::thread other([&] {
    std::mt19937 random(30);
    while (!ended) {
      auto block = engine_().workspace().Allocate(1 + random() % kLargestBlock);
      ASSERT_TRUE(block.ok()) << block.status();
      const std::span<std::byte> bytes(block->data(), block->bytes());
      std::ranges::fill(bytes, kPattern);
      ++blocks;
      blocks_written_over += StaysFor(kLooks, bytes, kPattern) ? 0 : 1;
      *block = Workspace::Block();
      std::this_thread::yield();
    }
  });
  const int operators = LongTests() ? 100000 : 2000;
  uint64_t weights_written_over = 0;
  for (int i = 0; i < operators; ++i) {
    const ParameterId id{static_cast<uint32_t>(i % 3)};
    auto operation = engine_().Use(Pass::kForward, std::vector<ParameterId>{id});
    ASSERT_TRUE(operation.ok()) << operation.status();
    const std::span<const float> weights(reinterpret_cast<const float*>(operation->Weight(id)),
                                         kElements);
    weights_written_over += StaysFor(kLooks, weights, 1 + static_cast<float>(id)) ? 0 : 1;
  }
  ended = true;
  other.join();
  EXPECT_GT(blocks, 0u);
  EXPECT_EQ(weights_written_over, 0u) << "of " << operators;
  EXPECT_EQ(blocks_written_over, 0u) << "of " << blocks;
}

TEST_F(EngineCallsTest, OperatorThatDoesNotFit_ChangesNothing) {
  const auto train = [this](bool tries) {
    Make(ThreeParameters(), SmallChunks(), 20 << 10);  // two of three chunks fit
    for (int step = 0; step < 4; ++step) {
      EXPECT_TRUE(engine_().BeginMicroBatch().ok());
      if (tries) {
        const auto all = engine_().Use(Pass::kForward, std::vector<ParameterId>{kA, kB, kC});
        EXPECT_TRUE(absl::IsResourceExhausted(all.status())) << all.status();
      }
      {
        auto first = engine_().Use(Pass::kForward, std::vector<ParameterId>{kA, kB});
        EXPECT_TRUE(first.ok()) << first.status();
        const auto* weight = reinterpret_cast<const float*>(first->Weight(kA));
        const float before = weight[0];
        if (tries) {
          const auto third = engine_().Use(Pass::kForward, std::vector<ParameterId>{kC});
          EXPECT_TRUE(absl::IsResourceExhausted(third.status())) << third.status();
          EXPECT_THAT(std::string(third.status().message()), HasSubstr("24.0 KiB"));
        }
        EXPECT_EQ(weight[0], before);
      }
      for (ParameterId id : {kC, kB, kA}) EXPECT_TRUE(Backward(engine_(), id).ok());
      EXPECT_TRUE(engine_().Step({.learning_rate = 0.1}).ok());
    }
    EXPECT_EQ(engine_().GetStatistics()->plans_made, 1u);
    return AllValues();
  };
  EXPECT_EQ(train(true), train(false));
}

TEST_F(EngineCallsTest, MicroBatchWhoseOperatorDoesNotFit_CanBeCancelled) {
  Make(ThreeParameters(), SmallChunks(), 20 << 10);
  MustStep();
  const auto before = AllValues();
  ASSERT_TRUE(engine_().BeginMicroBatch().ok());
  ASSERT_TRUE(Backward(engine_(), kB, 7).ok());
  const auto all = engine_().Use(Pass::kForward, std::vector<ParameterId>{kA, kB, kC});
  EXPECT_TRUE(absl::IsResourceExhausted(all.status())) << all.status();
  ASSERT_TRUE(engine_().CancelMicroBatch().ok());
  EXPECT_EQ(AllValues(), before);
  MustStep();
}

TEST_F(EngineCallsTest, OperationAssignedTo_FinishesWhatItHeld) {
  Make(ThreeParameters(), SmallChunks());
  ASSERT_TRUE(engine_().BeginMicroBatch().ok());
  auto first = engine_().Use(Pass::kForward, std::vector<ParameterId>{kA});
  auto second = engine_().Use(Pass::kForward, std::vector<ParameterId>{kB});
  ASSERT_TRUE(first.ok() && second.ok());
  *first = *std::move(second);
  EXPECT_EQ(first->Weight(kA), nullptr);
  EXPECT_NE(first->Weight(kB), nullptr);
  EXPECT_EQ(second->Weight(kA), nullptr);
  ASSERT_TRUE(first->Finish().ok());
  for (ParameterId id : {kC, kB, kA}) ASSERT_TRUE(Backward(engine_(), id).ok());
  EXPECT_TRUE(engine_().Step({.learning_rate = 0.1}).ok());  // refused while an operation is open
}

TEST_F(EngineCallsTest, SameParameterInTwoOperationsAtOnce_IsThereUntilBothHaveFinished) {
  Make(ThreeParameters(), SmallChunks());
  ASSERT_TRUE(engine_().BeginMicroBatch().ok());
  auto first = engine_().Use(Pass::kForward, std::vector<ParameterId>{kA});
  auto second = engine_().Use(Pass::kForward, std::vector<ParameterId>{kA, kB});
  ASSERT_TRUE(second.ok()) << second.status();
  ASSERT_TRUE(first->Finish().ok());
  EXPECT_EQ(*reinterpret_cast<const float*>(second->Weight(kA)), 1);
  EXPECT_TRUE(second->Finish().ok());
}

TEST_F(EngineCallsTest, MicroBatchesOfOnePartEach_GiveTheBitsOfWholeOnes) {
  const std::vector<ParameterId> first = {kB}, second = {kC, kA};
  const auto value = [](int step, int m) {
    return 0.3F * static_cast<float>(m + 1) + 0.1F * static_cast<float>(step);
  };
  // With one chunk per parameter, and with one chunk for all.
  for (const int64_t chunk_elements : {kElements, 4 * kElements}) {
    Options options = SmallChunks();
    options.chunk_elements = static_cast<uint64_t>(chunk_elements);
    options.clip_norm = 0.5;
    options.accumulate = 3;
    Make(ThreeParameters(), options);
    std::vector<double> norms;
    for (int step = 0; step < 3; ++step) {
      for (int m = 0; m < 3; ++m) ASSERT_TRUE(MicroBatch(engine_(), value(step, m)).ok());
      norms.push_back(engine_().Step({.learning_rate = 0.1})->gradient_norm);
    }
    const auto expected = AllValues();
    const uint64_t bytes = engine_().GetStatistics()->device_to_host_bytes;

    options.micro_batch_parts = 2;
    Make(ThreeParameters(), options);
    for (int step = 0; step < 3; ++step) {
      for (const auto& [part, m] : std::vector<std::pair<std::vector<ParameterId>, int>>{
               {first, 0}, {first, 1}, {second, 0}, {first, 2}, {second, 1}, {second, 2}}) {
        const absl::Status status = PartOfMicroBatch(engine_(), part, value(step, m));
        ASSERT_TRUE(status.ok()) << status;
      }
      const auto result = engine_().Step({.learning_rate = 0.1});
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_DOUBLE_EQ(result->gradient_norm, norms[static_cast<size_t>(step)]);
    }
    EXPECT_EQ(AllValues(), expected);
    if (chunk_elements > kElements) continue;
    // Without gradients in a micro-batch, nothing is copied to the host.
    EXPECT_EQ(engine_().GetStatistics()->device_to_host_bytes, bytes);
  }
}

// The last micro-batch also reduces the sums of the other part.
TEST_F(EngineCallsTest, PartsOfMicroBatchesInTheFirstStage_AddUpToThoseOfTheWhole) {
  const std::vector<ParameterId> first = {kB}, second = {kC, kA};
  for (const int64_t chunk_elements : {kElements, 4 * kElements}) {
    Options options = SmallChunks();
    options.chunk_elements = static_cast<uint64_t>(chunk_elements);
    options.clip_norm = 0.5;
    options.accumulate = 3;
    options.stage = Stage::kState;
    std::vector<std::vector<float>> expected;
    std::vector<double> norms;
    for (const int parts : {1, 2}) {
      options.micro_batch_parts = parts;
      Make(ThreeParameters(), options);
      for (int step = 0; step < 3; ++step) {
        const auto value = [step](int m) {
          return 0.3F * static_cast<float>(m + 1) + 0.1F * static_cast<float>(step);
        };
        if (parts == 1) {
          for (int m = 0; m < 3; ++m) ASSERT_TRUE(MicroBatch(engine_(), value(m)).ok());
          norms.push_back(engine_().Step({.learning_rate = 0.1})->gradient_norm);
          continue;
        }
        for (const auto& [part, m] : std::vector<std::pair<std::vector<ParameterId>, int>>{
                 {first, 0}, {second, 0}, {first, 1}, {first, 2}, {second, 1}, {second, 2}}) {
          if (m == 2) {
            EXPECT_TRUE(absl::IsFailedPrecondition(engine_().GradientNorm().status()));
          }
          const absl::Status status = PartOfMicroBatch(engine_(), part, value(m));
          ASSERT_TRUE(status.ok()) << status;
        }
        EXPECT_TRUE(absl::IsFailedPrecondition(engine_().BeginMicroBatch()));
        const auto result = engine_().Step({.learning_rate = 0.1});
        ASSERT_TRUE(result.ok()) << result.status();
        EXPECT_DOUBLE_EQ(result->gradient_norm, norms[static_cast<size_t>(step)]);
      }
      if (parts == 1) expected = AllValues();
    }
    EXPECT_EQ(AllValues(), expected);
  }
}

TEST_F(EngineCallsTest, PartWithoutAMicroBatch_HasAGradientOfZeros) {
  Options options = SmallChunks();
  options.accumulate = 2;
  options.micro_batch_parts = 2;
  Make(ThreeParameters(), options);
  for (int m = 0; m < 4; ++m) ASSERT_TRUE(PartOfMicroBatch(engine_(), {kA}, 1).ok());
  ASSERT_TRUE(engine_().Step({.learning_rate = 0.1}).ok());
  // Now the other part, after the sums of another step.
  for (int m = 0; m < 4; ++m) ASSERT_TRUE(PartOfMicroBatch(engine_(), {kB}, 1).ok());
  const auto result = engine_().Step({.learning_rate = 0.1});
  ASSERT_TRUE(result.ok()) << result.status();
  // On average, b gets ones twice per whole micro-batch.
  EXPECT_NEAR(result->gradient_norm, 2 * std::sqrt(kElements), 1e-6);
}

TEST_F(EngineCallsTest, PartsOfASingleMicroBatch_AreRefused) {
  Make(ThreeParameters(), SmallChunks());
  Options options = SmallChunks();
  options.micro_batch_parts = 2;
  rank_.engine.reset();
  const auto engine =
      Engine::Create(rank_.session.get(), rank_.communicator.get(), ThreeParameters(), options);
  EXPECT_TRUE(absl::IsInvalidArgument(engine.status()));
  EXPECT_THAT(std::string(engine.status().message()), HasSubstr("micro_batch_parts is 2"));
}

TEST_F(EngineCallsTest, EngineOfAPart_RefusesWhatRanksOfOtherPartsCannotPassOn) {
  Make(ThreeParameters(), SmallChunks());
  rank_.engine.reset();
  Options options = SmallChunks();
  const std::unique_ptr<collectives::Communicator> all = collectives::MakeSelfCommunicator();
  const auto create = [&](const std::vector<Parameter>& parameters, Options with) {
    with.all_ranks = all.get();
    return Engine::Create(rank_.session.get(), rank_.communicator.get(), parameters, with);
  };
  Options whole_tensors = options;
  whole_tensors.optimizer = LambOptions{};
  std::vector<Parameter> left_out = ThreeParameters();
  left_out[1].update_without_gradient = false;
  for (const auto& refused :
       {create(ThreeParameters(), whole_tensors).status(), create(left_out, options).status()}) {
    EXPECT_TRUE(absl::IsInvalidArgument(refused));
    EXPECT_THAT(std::string(refused.message()), HasSubstr("cannot resume together"));
    EXPECT_EQ(all->Barrier(), absl::OkStatus());
  }
  Options alone = options;
  alone.model = ThreeParameters();
  EXPECT_THAT(std::string(Engine::Create(rank_.session.get(), rank_.communicator.get(),
                                         ThreeParameters(), alone)
                              .status()
                              .message()),
              HasSubstr("give Options::all_ranks, too"));
  auto engine = create(ThreeParameters(), options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  rank_.engine = *std::move(engine);
  ASSERT_TRUE(engine_().Initialize([](ParameterId, std::span<float>) { return absl::OkStatus(); }).ok());
  ASSERT_TRUE(MicroBatch(engine_(), 1).ok());
  const auto step = engine_().Step({.learning_rate = 0.1, .groups = {{.learning_rate = 0.1}}});
  EXPECT_TRUE(absl::IsInvalidArgument(step.status()));
  EXPECT_THAT(std::string(step.status().message()), HasSubstr("do not know this part's groups"));
  EXPECT_TRUE(engine_().Step({.learning_rate = 0.1}).ok());
  rank_.engine.reset();  // before its ranks
}

TEST_F(EngineCallsTest, ParameterGivenGradientsAnyNumberOfTimes_GetsTheirSum) {
  std::vector<Parameter> parameters = ThreeParameters();
  parameters[1].backward_uses = 0;
  Options options = SmallChunks();
  options.optimizer = SgdOptions{};
  Make(parameters, options);
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE(engine_().BeginMicroBatch().ok());
    ASSERT_TRUE(Forward(engine_(), {kB}).ok());
    ASSERT_TRUE(Backward(engine_(), kB, 1).ok());
    ASSERT_TRUE(Forward(engine_(), {kB, kC}).ok()) << "its weight is still there";
    ASSERT_TRUE(Backward(engine_(), kB, 2).ok());
    const std::vector<float> more = Ones(4);
    ASSERT_TRUE(engine_().AddGradient(kB, std::as_bytes(std::span(more)), DataType::kFloat32).ok());
    const std::vector<uint16_t> half(kElements, 0x4100);  // 8 in bf16
    ASSERT_TRUE(
        engine_().AddGradient(kB, std::as_bytes(std::span(half)), DataType::kBFloat16).ok());
    ASSERT_TRUE(engine_().Step({.learning_rate = 0.125}).ok());
  }
  EXPECT_FLOAT_EQ(First(kB), 2 - 3 * 0.125f * 15);
  EXPECT_EQ(First(kA), 1);
}

// --- what is refused -----------------------------------------------------------------------------

TEST_F(EngineCallsTest, Misuse_IsAnErrorAndTheEngineGoesOn) {
  Make(ThreeParameters(), SmallChunks());
  Engine& engine = engine_();
  EXPECT_TRUE(absl::IsFailedPrecondition(engine.Step({.learning_rate = 0.1}).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(engine.GradientNorm().status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(Forward(engine, {kA})));
  EXPECT_TRUE(absl::IsInvalidArgument(engine.ReadParameter(ParameterId{3}).status()));
  ASSERT_TRUE(engine.BeginMicroBatch().ok());
  EXPECT_TRUE(absl::IsInvalidArgument(Forward(engine, {kA, ParameterId{3}})));
  {
    auto operation = engine.Use(Pass::kForward, std::vector<ParameterId>{kA});
    EXPECT_EQ(operation->Gradient(kA), nullptr);
    EXPECT_EQ(operation->Weight(kB), nullptr);
    EXPECT_TRUE(absl::IsFailedPrecondition(operation->GradientWritten(kA)));
    EXPECT_TRUE(absl::IsInvalidArgument(operation->GradientWritten(kB)));
    EXPECT_THAT(std::string(engine.BeginMicroBatch().message()), HasSubstr("open"));
    EXPECT_THAT(std::string(engine.Step({.learning_rate = 0.1}).status().message()),
                HasSubstr("open"));
    ASSERT_TRUE(operation->Finish().ok());
    EXPECT_TRUE(operation->Finish().ok());
    EXPECT_EQ(operation->Weight(kA), nullptr);
    EXPECT_TRUE(absl::IsFailedPrecondition(operation->GradientWritten(kA)));
  }
  ASSERT_TRUE(Backward(engine, kA).ok());
  ASSERT_TRUE(Backward(engine, kB).ok());
  const std::vector<float> ones = Ones();
  const auto bytes = std::as_bytes(std::span(ones));
  EXPECT_THAT(std::string(engine.AddGradient(kC, bytes, DataType::kFloat32).message()),
              HasSubstr("separate_gradient"));
  EXPECT_TRUE(absl::IsInvalidArgument(engine.AddGradient(kC, bytes, DataType::kBFloat16)));
  ASSERT_TRUE(Backward(engine, kC).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(engine.Step({.learning_rate = NAN}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      engine.Step({.learning_rate = 1, .groups = {{.learning_rate = -1}}}).status()));
  EXPECT_TRUE(engine.Step({.learning_rate = 0.1}).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(engine.Initialize([](ParameterId, std::span<float>) { return absl::OkStatus(); })));
  MustStep();
}

TEST_F(EngineCallsTest, WeightUnderItsGradient_IsRefusedUntilThatHasLeft) {
  std::vector<Parameter> parameters = ThreeParameters();
  parameters[0].shape = parameters[1].shape = {kElements / 2};
  Make(parameters, SmallChunks());
  ASSERT_TRUE(engine_().BeginMicroBatch().ok());
  {
    auto operation = engine_().Use(Pass::kBackward, std::vector<ParameterId>{kA});
    std::memset(operation->Gradient(kA), 0, kElements / 2 * sizeof(float));
    ASSERT_TRUE(operation->GradientWritten(kA).ok());
    EXPECT_TRUE(absl::IsFailedPrecondition(operation->GradientWritten(kA)));
  }
  const absl::Status status = Forward(engine_(), {kA});
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("'a'"), HasSubstr("separate_gradient")));
  EXPECT_TRUE(Forward(engine_(), {kB}).ok());
  EXPECT_TRUE(engine_().Step({.learning_rate = 0.1}).ok());
}

TEST_F(EngineCallsTest, OperationThatOutlivesItsEngine_DoesNothing) {
  Make(ThreeParameters(), SmallChunks());
  ASSERT_TRUE(engine_().BeginMicroBatch().ok());
  auto operation = engine_().Use(Pass::kForward, std::vector<ParameterId>{kA});
  ASSERT_TRUE(operation.ok());
  Operation taken = *std::move(operation);
  EXPECT_EQ(operation->Weight(kA), nullptr);
  EXPECT_FALSE(operation->Finish().ok());
  rank_.engine.reset();
  EXPECT_EQ(taken.Weight(kA), nullptr);
  EXPECT_TRUE(absl::IsFailedPrecondition(taken.Finish()));
}

// --- steps ---------------------------------------------------------------------------------------

TEST_F(EngineCallsTest, CancelledMicroBatch_IsAsIfItHadNotBeen) {
  for (int accumulate : {1, 2}) {
    Options options = SmallChunks();
    options.accumulate = accumulate;
    Make(ThreeParameters(), options);
    MustStep();
    const float undisturbed = First(kA);
    Make(ThreeParameters(), options);
    ASSERT_TRUE(MicroBatch(engine_(), 5).ok());
    ASSERT_TRUE(engine_().CancelMicroBatch().ok());
    ASSERT_TRUE(engine_().BeginMicroBatch().ok());
    ASSERT_TRUE(Backward(engine_(), kB, 9).ok());
    ASSERT_TRUE(engine_().CancelMicroBatch().ok());
    MustStep();
    EXPECT_EQ(First(kA), undisturbed);
  }
}

TEST_F(EngineCallsTest, GradientNorm_IsWhatTheStepReturnsAndMayBeLookedAtFirst) {
  Make(ThreeParameters(), SmallChunks());
  ASSERT_TRUE(MicroBatch(engine_(), 2).ok());
  const auto norm = engine_().GradientNorm();
  ASSERT_TRUE(norm.ok()) << norm.status();
  EXPECT_DOUBLE_EQ(*norm, 2 * std::sqrt(3.0 * kElements));
  EXPECT_EQ(*engine_().GradientNorm(), *norm);
  EXPECT_TRUE(absl::IsFailedPrecondition(Forward(engine_(), {kA})));
  EXPECT_EQ(engine_().Step({.learning_rate = 0.1})->gradient_norm, *norm);
  MustStep();
}

TEST_F(EngineCallsTest, StepWithTheNormOfAWholeModel_ClipsAndOverflowsByIt) {
  Make(ThreeParameters(), SmallChunks());
  ASSERT_TRUE(MicroBatch(engine_(), 2).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(
      engine_().Step({.learning_rate = 0.1, .gradient_norm = -1}).status()));
  const auto clipped = engine_().Step({.learning_rate = 0.1, .clip_norm = 2, .gradient_norm = 8});
  ASSERT_TRUE(clipped.ok()) << clipped.status();
  EXPECT_EQ(clipped->gradient_norm, 8);
  EXPECT_NEAR(clipped->clip_coefficient, 0.25, 1e-6);
  const auto before = First(kA);
  ASSERT_TRUE(MicroBatch(engine_(), 2).ok());
  const auto skipped = engine_().Step({.learning_rate = 0.1, .gradient_norm = std::nan("")});
  ASSERT_TRUE(skipped.ok()) << skipped.status();
  EXPECT_TRUE(skipped->overflow);
  EXPECT_EQ(First(kA), before);
  MustStep();
  EXPECT_NE(First(kA), before);
}

TEST_F(EngineCallsTest, StepOfAnyNumberOfMicroBatches_TakesTheirMeanOrTheirSum) {
  for (auto [scale, factor] :
       {std::pair{GradientScale::kMean, 1.0 / 3}, std::pair{GradientScale::kSum, 1.0}}) {
    Options options = SmallChunks();
    options.accumulate = 2;
    options.gradient_scale = scale;
    Make(ThreeParameters(), options);
    MustStep();  // one micro-batch
    for (float value : {1.0f, 2.0f, 6.0f}) ASSERT_TRUE(MicroBatch(engine_(), value).ok());
    const auto norm = engine_().GradientNorm();
    ASSERT_TRUE(norm.ok()) << norm.status();
    EXPECT_NEAR(*norm, 9 * factor * std::sqrt(3.0 * kElements), 1e-3);
    ASSERT_TRUE(engine_().Step({.learning_rate = 0.1}).ok());
  }
}

TEST_F(EngineCallsTest, GroupsOfAStep_HaveRatesAndDecaysOfTheirOwn) {
  std::vector<Parameter> parameters = ThreeParameters();
  parameters[1].group = 1;
  parameters[2].group = 2;
  Options options = SmallChunks();
  options.optimizer = SgdOptions{};
  Make(parameters, options);
  ASSERT_TRUE(MicroBatch(engine_()).ok());
  Engine::StepInput input;
  input.groups = {
      {.learning_rate = 0.5}, {.learning_rate = 0}, {.learning_rate = 0.25, .weight_decay = 1.0}};
  ASSERT_TRUE(engine_().Step(input).ok());
  EXPECT_FLOAT_EQ(First(kA), 1 - 0.5f);
  EXPECT_FLOAT_EQ(First(kB), 2);
  EXPECT_FLOAT_EQ(First(kC), 3 - 0.25f * (1 + 3));
  MustStep();
  EXPECT_FLOAT_EQ(First(kB), 2 - 0.1f);
}

TEST_F(EngineCallsTest, ParameterWithoutGradient_StaysAsItIsWhereThatWasAskedFor) {
  std::vector<Parameter> parameters = ThreeParameters();
  parameters[1].update_without_gradient = false;
  for (const Optimizer& optimizer :
       {Optimizer(AdamWOptions{}), Optimizer(AdafactorOptions{}), Optimizer(LambOptions{})}) {
    Options options = SmallChunks();
    options.optimizer = optimizer;
    Make(parameters, options);
    MustStep();
    const float before = First(kB);
    ASSERT_TRUE(engine_().BeginMicroBatch().ok());
    ASSERT_TRUE(Forward(engine_(), {kA}).ok());
    ASSERT_TRUE(engine_().Step({.learning_rate = 0.1}).ok());
    EXPECT_EQ(First(kB), before) << Name(optimizer);
    MustStep();
    EXPECT_NE(First(kB), before) << Name(optimizer);
  }
}

TEST_F(EngineCallsTest, ShardsGivenAtTheStart_AreAskedForByRange) {
  Make(ThreeParameters(), SmallChunks());
  uint64_t asked = 0;
  ASSERT_TRUE(engine_()
                  .InitializeShards([&](ParameterId id, uint64_t first, std::span<float> values) {
                    asked += values.size();
                    for (size_t i = 0; i < values.size(); ++i) {
                      values[i] = static_cast<float>(first + i) + 0.5f * static_cast<float>(id);
                    }
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_EQ(asked, 3u * kElements);
  const auto values = engine_().ReadParameter(kB);
  EXPECT_EQ((*values)[5], 5.5f);
  EXPECT_EQ(values->back(), kElements - 1 + 0.5f);
}

// --- evaluation ----------------------------------------------------------------------------------

TEST_F(EngineCallsTest, EvaluationAnywhere_ChangesNoBitAndKeepsTheOnePlan) {
  Make(ThreeParameters(), SmallChunks(), 24 << 10);
  for (int step = 0; step < 6; ++step) MustStep();
  const float undisturbed = First(kB);
  Make(ThreeParameters(), SmallChunks(), 24 << 10);
  const auto evaluate = [&] {
    for (int round = 0; round < 3; ++round) {
      for (ParameterId id : {kA, kC, kB}) {
        const auto status = engine_().Use(Pass::kEvaluate, std::vector<ParameterId>{id}).status();
        ASSERT_TRUE(status.ok()) << status;
      }
    }
  };
  for (int step = 0; step < 6; ++step) {
    ASSERT_TRUE(engine_().BeginMicroBatch().ok());
    for (ParameterId id : {kA, kB, kC}) ASSERT_TRUE(Forward(engine_(), {id}).ok());
    evaluate();
    for (ParameterId id : {kC, kB, kA}) {
      ASSERT_TRUE(Backward(engine_(), id).ok());
      if (id == kB) evaluate();
    }
    ASSERT_TRUE(engine_().GradientNorm().ok());
    evaluate();
    ASSERT_TRUE(engine_().Step({.learning_rate = 0.1}).ok());
    evaluate();
  }
  EXPECT_EQ(First(kB), undisturbed);
  EXPECT_EQ(engine_().GetStatistics()->plans_made, 1u);
}

// --- ranks and daemons that go wrong -------------------------------------------------------------

TEST_F(EngineCallsTest, RanksThatUseDifferentParameters_AreNamedWithBothChunks) {
  auto communicators = collectives::MakeLocalCommunicators(2);
  std::vector<absl::Status> statuses(2);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      ConnectOptions connect = Connection(env_.socket(), 64 << 10);
      connect.rank = connect.local_rank = static_cast<int>(rank);
      connect.world_size = 2;
      auto session = Session::Connect(connect);
      auto engine = Engine::Create(session->get(), communicators[rank].get(), ThreeParameters(),
                                   SmallChunks());
      ASSERT_TRUE(engine.ok()) << engine.status();
      absl::Status& status = statuses[rank];
      for (int step = 0; step < 3 && status.ok(); ++step) {
        status = (*engine)->BeginMicroBatch();
        std::vector<ParameterId> order = {kA, kB, kC};
        if (step == 2) std::swap(order[0], order[1 + rank]);
        for (ParameterId id : order) {
          if (status.ok()) status = Forward(**engine, {id});
        }
        for (ParameterId id : {kC, kB, kA}) {
          if (status.ok()) status = Backward(**engine, id);
        }
        if (status.ok()) status = (*engine)->Step({.learning_rate = 0.1}).status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(
        std::string(status.message()),
        AllOf(HasSubstr("chunk 1"), HasSubstr("chunk 2"), HasSubstr("rank 0"),
                      HasSubstr("rank 1"), HasSubstr("operator")))
        << status;
    EXPECT_TRUE(absl::IsInvalidArgument(status) || absl::IsAborted(status)) << status;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(statuses[0]) || absl::IsInvalidArgument(statuses[1]));
}

TEST_F(EngineCallsTest, DeviceThatDoesNotAnswer_IsADeadlineAndSaysWhatWasWaitedFor) {
  device::FaultPlan fault;
  fault.point = device::FaultPoint::kCopy;
  fault.nth = 2;
  fault.action = device::FaultAction::kDelay;
  fault.delay = 3 * kDeadline;
  rank_.communicator = collectives::MakeSelfCommunicator();
  auto session = ConnectWithDevice(Connection(env_.socket(), 256 << 10),
                                   device::MakeFaultyDevice(device::MakeHostDevice({}), fault));
  ASSERT_TRUE(session.ok()) << session.status();
  rank_.session = *std::move(session);
  Options options = SmallChunks();
  options.timeout = kDeadline;
  MakeEngine(ThreeParameters(), options);
  ASSERT_TRUE(engine_().BeginMicroBatch().ok());
  ASSERT_TRUE(Forward(engine_(), {kA}).ok());
  const absl::Status status = Forward(engine_(), {kB});
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("waited for 'b' on the device"));
  EXPECT_EQ(engine_().Step({.learning_rate = 0.1}).status(), status);
}

class StoppedDaemonTest : public EngineCallsTest {
 protected:
  void SetUp() override {
    auto daemon = PrivateDaemon::Start({});
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    rank_.communicator = collectives::MakeSelfCommunicator();
    ConnectOptions connect = Connection(daemon_->socket(), 20 << 10);
    connect.timeout = 2 * kDeadline;
    auto session = Session::Connect(connect);
    ASSERT_TRUE(session.ok()) << session.status();
    rank_.session = *std::move(session);
    Options options = SmallChunks();
    options.timeout = kDeadline;
    MakeEngine(ThreeParameters(), options);
    MustStep();
    ASSERT_TRUE(engine_().BeginMicroBatch().ok());
    ASSERT_TRUE(Forward(engine_(), {kA}).ok());
  }
  void TearDown() override {
    kill(daemon_->pid(), SIGCONT);
    rank_.engine.reset();  // before the session
    rank_ = {};
  }

  std::unique_ptr<PrivateDaemon> daemon_;
};

TEST_F(StoppedDaemonTest, EveryCall_EndsWithWhatItWaitedFor) {
  kill(daemon_->pid(), SIGSTOP);
  absl::Status status;
  for (ParameterId id : {kB, kC, kA}) {
    if (status.ok()) status = Forward(engine_(), {id});
  }
  EXPECT_THAT(status.code(),
              AnyOf(absl::StatusCode::kDeadlineExceeded, absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(status.message()), AnyOf(HasSubstr("waited"), HasSubstr("within")));
  // Later calls fail at once with the same error.
  EXPECT_EQ(engine_().BeginMicroBatch(), status);
  EXPECT_EQ(engine_().ReadParameter(kA).status(), status);
}

TEST_F(StoppedDaemonTest, Step_EndsWithWhatItWaitedFor) {
  kill(daemon_->pid(), SIGSTOP);
  const absl::Status status = engine_().Step({.learning_rate = 0.1}).status();
  EXPECT_THAT(status.code(),
              AnyOf(absl::StatusCode::kDeadlineExceeded, absl::StatusCode::kUnavailable));
}

TEST_F(StoppedDaemonTest, CancelMicroBatch_EndsWithWhatItWaitedFor) {
  kill(daemon_->pid(), SIGSTOP);
  const absl::Status status = engine_().CancelMicroBatch();
  EXPECT_THAT(status.code(),
              AnyOf(absl::StatusCode::kDeadlineExceeded, absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace geminid::zero
