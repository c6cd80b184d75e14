// The device updates state that lies on the host: the bits of updates by the host, the bytes that
// cross the link, and the room of the places.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "client/zero/core/extent.h"
#include "client/zero/state/state_placement.h"
#include "tests/client/zero/engine_fixture.h"

namespace geminid::zero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class EngineStreamedTest : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    run_.options.state_placement = StatePlacement::kStreamed;
  }

  std::vector<std::vector<float>> WeightsOfUpdatesByTheHost() {
    SyntheticRun host = run_;
    host.options.state_placement = StatePlacement::kHost;
    const absl::StatusOr<SyntheticResult> result = Train(host);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->weights : std::vector<std::vector<float>>();
  }

  // The additional traffic of updates by the device, compared with updates by the host.
  struct Traffic {
    Statistics streamed;
    Statistics host;
    uint64_t up_bytes = 0;  // per element of the state and step
    uint64_t down_bytes = 0;
  };
  Traffic TrafficOfStreaming() {
    run_.options.placement = Placement::kCpu;
    Traffic traffic = {.streamed = MustTrain().statistics[0], .host = {}};
    run_.options.state_placement = StatePlacement::kHost;
    traffic.host = MustTrain().statistics[0];
    // With AdamW and bf16 an element has 12 bytes of state and 2 bytes of gradient.
    const uint64_t elements = traffic.streamed.model_state_bytes / 12;
    const uint64_t moves = static_cast<uint64_t>(run_.steps) * elements;
    const uint64_t up = traffic.streamed.host_to_device_bytes - traffic.host.host_to_device_bytes;
    const uint64_t down = traffic.streamed.device_to_host_bytes - traffic.host.device_to_host_bytes;
    EXPECT_EQ(up % moves, 0u);
    EXPECT_EQ(down % moves, 0u);
    traffic.up_bytes = up / moves;
    traffic.down_bytes = down / moves;
    return traffic;
  }

  absl::Status Refused() {
    SyntheticResult none;
    return TrainStatuses(run_, &none)[0];
  }
};

TEST_F(EngineStreamedTest, EveryWorldSizeArenaAndPlacement_GivesTheBitsOfDenseTraining) {
  run_.model = MixedModel(DataType::kFloat32);
  for (const int world_size : {1, 2}) {
    for (const int accumulate : {1, 2}) {
      run_.world_size = world_size;
      run_.options.accumulate = accumulate;
      const std::vector<std::vector<float>> expected = TrainDensely(run_);
      for (auto [placement, arena] :
           {std::pair{Placement::kAuto, 2 * kTightArena}, std::pair{Placement::kAuto, kAmpleArena},
            std::pair{Placement::kCpu, 2 * kTightArena}}) {
        SCOPED_TRACE(::testing::Message() << "world " << world_size << ", accumulate " << accumulate
                                          << ", arena " << arena);
        run_.options.placement = placement;
        run_.arena_bytes = arena;
        ExpectSameBits(MustTrain().weights, expected);
      }
    }
  }
}

// Sums over whole tensors are computed where the state lies.
TEST_F(EngineStreamedTest, EveryOptimizerAndTypeOfState_GivesTheBitsOfUpdatesByTheHost) {
  run_.world_size = 2;
  run_.steps = 3;
  run_.arena_bytes = 1 << 20;
  run_.options.clip_norm = 1;
  for (const Optimizer& optimizer :
       {Optimizer(AdamWOptions{}), Optimizer(AdamOptions{.weight_decay = 0.01}),
        Optimizer(LionOptions{}), Optimizer(AdagradOptions{}),
        Optimizer(SgdOptions{.momentum = 0.9}), Optimizer(LambOptions{}), Optimizer(LarsOptions{}),
        Optimizer(AdafactorOptions{.beta1 = 0.9}), Optimizer(CameOptions{})}) {
    for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
      SCOPED_TRACE(::testing::Message() << Name(optimizer) << ", type " << static_cast<int>(type));
      run_.options.optimizer = optimizer;
      run_.options.state_type = type;
      ExpectSameBits(MustTrain().weights, WeightsOfUpdatesByTheHost());
    }
  }
}

TEST_F(EngineStreamedTest, OptimizersWithoutArrays_GiveTheBitsOfUpdatesByTheHost) {
  for (const Optimizer& optimizer : {Optimizer(SgdOptions{}), Optimizer(AdafactorOptions{})}) {
    SCOPED_TRACE(Name(optimizer));
    run_.options.optimizer = optimizer;
    ExpectSameBits(MustTrain().weights, WeightsOfUpdatesByTheHost());
  }
}

TEST_F(EngineStreamedTest, GranulesOfManySlices_GiveTheBitsOfDenseTraining) {
  run_.options.chunk_elements = 100'000;  // not a multiple of a slice
  run_.options.update_threads = 3;
  run_.arena_bytes = 1 << 20;
  ASSERT_GT(100'000u, 4 * StreamedElements(100'000, 14, run_.arena_bytes));
  ExpectSameBits(MustTrain().weights, TrainDensely(run_));
}

TEST_F(EngineStreamedTest, EveryStage_GivesTheBitsOfUpdatesByTheHost) {
  run_.world_size = 2;
  run_.options.accumulate = 2;
  for (const Stage stage : {Stage::kState, Stage::kGradients}) {
    SCOPED_TRACE(static_cast<int>(stage));
    run_.options.stage = stage;
    ExpectSameBits(MustTrain().weights, WeightsOfUpdatesByTheHost());
  }
}

TEST_F(EngineStreamedTest, SlowLink_ChangesTheTimeAndNothingElse) {
  run_.arena_bytes = kTightArena;
  run_.steps = 3;
  run_.copy_bytes_per_second = 50e6;
  ExpectSameBits(MustTrain().weights, TrainDensely(run_));
}

TEST_F(EngineStreamedTest, StepThatOverflows_IsSkipped) {
  run_.world_size = 2;
  run_.options.loss_scale = FixedLossScale(1);
  run_.overflow_step = 1;
  ExpectSameBits(MustTrain().weights, TrainDensely(run_));
}

TEST_F(EngineStreamedTest, FrozenParameters_AreNotStreamed) {
  run_.model.parameters[2].trainable = false;
  const SyntheticResult result = MustTrain();
  ExpectSameBits(result.weights, TrainDensely(run_));
  EXPECT_LT(result.statistics[0].state_chunks_streamed, result.statistics[0].chunks);
  EXPECT_GT(result.statistics[0].state_chunks_streamed, 0u);
}

// State within the share stays on the device. The same step streams all other state.
TEST_F(EngineStreamedTest, ShareOnTheDevice_IsNotStreamed) {
  run_.world_size = 2;
  run_.arena_bytes = 1 << 20;
  run_.options.state_share = 0.5;
  for (const Optimizer& optimizer : {Optimizer(AdamWOptions{}), Optimizer(CameOptions{})}) {
    SCOPED_TRACE(Name(optimizer));
    run_.options.optimizer = optimizer;
    const SyntheticResult result = MustTrain();
    ExpectSameBits(result.weights, WeightsOfUpdatesByTheHost());
    const Statistics& rank = result.statistics[0];
    EXPECT_GT(rank.state_chunks_on_device, 0u);
    EXPECT_GT(rank.state_chunks_streamed, 0u);
    EXPECT_EQ(rank.state_chunks_on_device + rank.state_chunks_streamed, rank.chunks);
    EXPECT_LE(rank.peak_total_bytes, run_.arena_bytes);
  }
}

TEST_F(EngineStreamedTest, StateAndGradientGoUpAndStateComesBack_OnceAStep) {
  const Traffic traffic = TrafficOfStreaming();
  EXPECT_EQ(traffic.up_bytes, 14u);
  EXPECT_EQ(traffic.down_bytes, 12u);
  EXPECT_EQ(traffic.streamed.host_bytes, traffic.host.host_bytes);
  EXPECT_EQ(traffic.streamed.state_chunks_streamed, traffic.streamed.chunks);
  EXPECT_EQ(traffic.host.state_chunks_streamed, 0u);
}

// The gradient is used where it was reduced.
TEST_F(EngineStreamedTest, UpdatesInTheBackwardPass_GiveTheBitsAndMoveNoGradient) {
  run_.options.update = UpdateTime::kInBackward;
  for (const uint64_t arena : {kTightArena, kAmpleArena}) {
    run_.arena_bytes = arena;
    run_.world_size = 2;
    ExpectSameBits(MustTrain().weights, TrainDensely(run_));
  }
  run_.world_size = 1;
  const Traffic traffic = TrafficOfStreaming();
  EXPECT_EQ(traffic.up_bytes, 12u);
  EXPECT_EQ(traffic.down_bytes, 10u);
}

// Three places for slices of 1024 elements: weight, remainder, two moments and the gradient.
TEST_F(EngineStreamedTest, Places_AreOfTheArena) {
  run_.arena_bytes = kTightArena;
  const Statistics rank = MustTrain().statistics[0];
  EXPECT_EQ(rank.device_state_bytes, 3 * RoundUpToExtent(1024 * (2 + 2 + 4 + 4 + 2)));
  EXPECT_LE(rank.peak_total_bytes, run_.arena_bytes);
}

TEST_F(EngineStreamedTest, ArenaWithoutRoomForThePlaces_IsRefusedWithTheNumbers) {
  run_.arena_bytes = 32 << 10;
  const absl::Status refused = Refused();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("streamed through 3 places of"),
                                                    HasSubstr("use more device memory")));
}

TEST_F(EngineStreamedTest, WeightsThatStayOnTheDevice_AreRefusedBesideStateOnTheHost) {
  run_.options.placement = Placement::kDevice;
  EXPECT_TRUE(absl::IsInvalidArgument(Refused())) << Refused();
}

}  // namespace
}  // namespace geminid::zero
