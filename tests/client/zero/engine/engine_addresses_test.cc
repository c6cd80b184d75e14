// Addresses of parameters: they may move, unless the trainer asked for fixed ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/local/local_communicator.h"
#include "geminid/session.h"
#include "tests/client/zero/engine_fixture.h"
#include "tests/client/zero/is_there.h"

namespace geminid::zero {
namespace {

constexpr int64_t kElements = 2048;
constexpr ParameterId kA{0}, kB{1};

class EngineAddressesTest : public EngineTest {
 protected:
  void Make(bool stable) {
    engine_.reset();
    session_.reset();
    ConnectOptions connect;
    connect.socket = env_.socket();
    connect.device_memory_bytes = 256 << 10;
    auto session = Session::Connect(connect);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
    Options options;
    options.data_type = DataType::kFloat32;
    options.chunk_elements = kElements;
    options.placement = Placement::kCpu;
    options.stable_addresses = stable;
    MakeEngine(options);
  }

  void MakeEngine(const Options& options) {
    auto engine = Engine::Create(
        session_.get(), communicator_.get(),
        {{.name = "a", .shape = {kElements}}, {.name = "b", .shape = {kElements}}}, options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    const auto fill = [](ParameterId id, std::span<float> values) {
      std::ranges::fill(values, 1 + static_cast<float>(id));
      return absl::OkStatus();
    };
    ASSERT_TRUE(engine_->Initialize(fill).ok());
  }

  Operation Use(ParameterId id) {
    auto operation = engine_->Use(Pass::kEvaluate, std::vector<ParameterId>{id});
    EXPECT_TRUE(operation.ok()) << operation.status();
    return *std::move(operation);
  }

  // The address of A, with or without an earlier use of B.
  const std::byte* WhereAIs(bool after_b) {
    std::optional<Operation> before;
    if (after_b) before = Use(kB);
    const Operation operation = Use(kA);
    const std::byte* const weight = operation.Weight(kA);
    EXPECT_EQ(*reinterpret_cast<const float*>(weight), 1);
    return weight;
  }

  std::unique_ptr<collectives::Communicator> communicator_ = collectives::MakeSelfCommunicator();
  std::unique_ptr<Session> session_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineAddressesTest, StableAddresses_AreTheSameWhereverTheChunkIs) {
  std::vector<std::ptrdiff_t> offsets;
  for (const bool after_b : {false, true}) {
    Make(/*stable=*/false);
    offsets.push_back(WhereAIs(after_b) - session_->arena());
    EXPECT_EQ(engine_->StableAddress(kA), nullptr);
    Make(/*stable=*/true);
    EXPECT_EQ(WhereAIs(after_b), engine_->StableAddress(kA));
  }
  EXPECT_NE(offsets[0], offsets[1]) << "or nothing was shown";
  EXPECT_NE(engine_->StableAddress(kA), engine_->StableAddress(kB));
  EXPECT_EQ(engine_->StableAddress(ParameterId{2}), nullptr);
}

TEST_F(EngineAddressesTest, AddressOfAParameterThatIsAway_IsAFault) {
  Make(/*stable=*/true);
  const std::byte* const a = engine_->StableAddress(kA);
  EXPECT_FALSE(IsThere(a));
  {
    const Operation operation = Use(kA);
    EXPECT_TRUE(IsThere(a));
    EXPECT_FALSE(IsThere(engine_->StableAddress(kB)));
  }
  (void)Use(kB);
  EXPECT_FALSE(IsThere(a));
}

TEST_F(EngineAddressesTest, NextEngineOfASession_HasAddressesOfItsOwn) {
  Make(/*stable=*/true);
  (void)Use(kA);
  const std::byte* const before = engine_->StableAddress(kA);
  engine_.reset();
  EXPECT_FALSE(IsThere(before));
  MakeEngine({.data_type = DataType::kFloat32, .stable_addresses = true});
  EXPECT_EQ(Use(kA).Weight(kA), engine_->StableAddress(kA));
}

TEST_F(EngineAddressesTest, TrainingAtStableAddresses_GivesTheBitsOfDenseTraining) {
  run_.model = MixedModel(DataType::kFloat32);
  run_.options.stable_addresses = true;
  for (int world_size : {1, 2}) {
    run_.world_size = world_size;
    const std::vector<std::vector<float>> expected = TrainDensely(run_);
    for (const uint64_t arena : {2 * kTightArena, kAmpleArena}) {
      run_.arena_bytes = arena;
      ExpectSameBits(MustTrain().weights, expected);
    }
  }
}

}  // namespace
}  // namespace geminid::zero
