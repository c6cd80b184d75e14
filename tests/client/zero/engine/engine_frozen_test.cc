// Frozen parameters of types that cannot be trained: the base of low-rank adapters in 8 bits or
// fp16.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/local/local_communicator.h"
#include "geminid/session.h"
#include "geminid/zero.h"
#include "kernels/runtime/common/float16.h"
#include "tests/daemon_env/daemon_env.h"

namespace geminid::zero {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kBase = 5000;    // elements of the frozen parameter
constexpr uint64_t kAdapter = 600;  // elements of the trained parameter
constexpr ParameterId kBaseId{0}, kAdapterId{1};

// A value that the type can represent.
float ValueOf(DataType type, size_t i) {
  const int byte = static_cast<int>(i * 7 % 256);
  if (type == DataType::kInt8) return static_cast<float>(byte - 128);
  if (type == DataType::kUint8) return static_cast<float>(byte);
  return static_cast<float>(byte - 100) / 64;
}

float OnDevice(DataType type, const std::byte* weight, size_t i) {
  if (type == DataType::kInt8)
    return static_cast<float>(reinterpret_cast<const int8_t*>(weight)[i]);
  if (type == DataType::kUint8) {
    return static_cast<float>(reinterpret_cast<const uint8_t*>(weight)[i]);
  }
  return reinterpret_cast<const kernels::Float16*>(weight)[i].ToFloat();
}

class EngineFrozenTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(env_.Start().ok()); }

  std::unique_ptr<Session> Connect(int rank, int ranks) {
    auto session = Session::Connect({.socket = env_.socket(),
                                     .rank = rank,
                                     .world_size = ranks,
                                     .local_rank = rank,
                                     .device_memory_bytes = 256 << 10});
    EXPECT_TRUE(session.ok()) << session.status();
    return *std::move(session);
  }

  static absl::StatusOr<std::unique_ptr<Engine>> Create(Session* session,
                                                        collectives::Communicator* ranks,
                                                        DataType type, Placement placement) {
    Parameter base = {.name = "base", .shape = {kBase}, .data_type = type, .trainable = false};
    Parameter adapter = {.name = "adapter", .shape = {kAdapter}, .separate_gradient = true};
    Options options = {.data_type = DataType::kFloat32, .placement = placement, .clip_norm = 0};
    options.optimizer = SgdOptions{};
    return Engine::Create(session, ranks, {base, adapter}, options);
  }

  // Trains the adapter for a step, and checks the bytes of the base.
  static void TrainBeside(DataType type, Session* session, Engine* engine) {
    ASSERT_TRUE(engine->BeginMicroBatch().ok());
    {
      auto operation = engine->Use(Pass::kBackward, std::vector<ParameterId>{kBaseId, kAdapterId});
      ASSERT_TRUE(operation.ok()) << operation.status();
      const std::byte* const weight = session->HostAddress(operation->Weight(kBaseId));
      EXPECT_EQ(operation->Gradient(kBaseId), nullptr);
      for (size_t i = 0; i < kBase; ++i) ASSERT_EQ(OnDevice(type, weight, i), ValueOf(type, i));
    }
    const std::vector<float> gradient(kAdapter, 2.0F);
    ASSERT_TRUE(
        engine->AddGradient(kAdapterId, std::as_bytes(std::span(gradient)), DataType::kFloat32)
            .ok());
    ASSERT_TRUE(engine->Step({.learning_rate = 0.5}).ok());
  }

  static void FillAndTrain(DataType type, Session* session, Engine* engine) {
    const absl::Status filled =
        engine->InitializeShards([type](ParameterId id, uint64_t first, std::span<float> values) {
          for (size_t i = 0; i < values.size(); ++i) {
            values[i] = id == kBaseId ? ValueOf(type, first + i) : 3.0F;
          }
          return absl::OkStatus();
        });
    ASSERT_TRUE(filled.ok()) << filled;
    for (int step = 0; step < 2; ++step) TrainBeside(type, session, engine);
    const std::vector<float> base = *engine->ReadParameter(kBaseId);
    for (size_t i = 0; i < kBase; ++i) ASSERT_EQ(base[i], ValueOf(type, i));
    EXPECT_THAT(*engine->ReadParameter(kAdapterId), Each(3.0F - 2 * 0.5F * 2.0F));
    EXPECT_FALSE(engine->HasState(kBaseId, StateKind::kExpAvg));
  }

  geminid::testing::DaemonEnv env_;
};

TEST_F(EngineFrozenTest, BaseOfAnyTypeOnAnyPlacement_KeepsItsBytesWhileAnAdapterIsTrained) {
  for (const DataType type : {DataType::kInt8, DataType::kUint8, DataType::kFloat16}) {
    for (const Placement placement : {Placement::kAuto, Placement::kCpu, Placement::kDevice}) {
      for (int world_size : {1, 2}) {
        SCOPED_TRACE(::testing::Message() << "type " << static_cast<int>(type) << ", placement "
                                          << static_cast<int>(placement) << ", " << world_size);
        auto communicators = collectives::MakeLocalCommunicators(world_size);
        std::vector<std::thread> ranks;
        for (int rank = 0; rank < world_size; ++rank) {
          ranks.emplace_back([&, rank] {
            const auto session = Connect(rank, world_size);
            auto engine = Create(session.get(), communicators[static_cast<size_t>(rank)].get(),
                                 type, placement);
            ASSERT_TRUE(engine.ok()) << engine.status();
            FillAndTrain(type, session.get(), engine->get());
          });
        }
        for (std::thread& rank : ranks) rank.join();
      }
    }
  }
}

TEST_F(EngineFrozenTest, ElementsInTheMiddle_AreWrittenThere) {
  const auto ranks = collectives::MakeSelfCommunicator();
  const auto session = Connect(0, 1);
  for (const DataType type : {DataType::kInt8, DataType::kUint8, DataType::kFloat16}) {
    auto engine = Create(session.get(), ranks.get(), type, Placement::kAuto);
    ASSERT_TRUE(engine.ok()) << engine.status();
    const std::vector<float> written = {7, 0, 100};
    ASSERT_TRUE((*engine)->WriteShard(kBaseId, StateKind::kMaster, 1001, written).ok());
    std::vector<float> read(5);
    ASSERT_TRUE((*engine)->ReadShard(kBaseId, StateKind::kMaster, 1000, read).ok());
    EXPECT_THAT(read, ElementsAre(0, 7, 0, 100, 0));
  }
}

// The base has one byte of state per element, and no moments.
TEST_F(EngineFrozenTest, BaseOf8Bits_TakesAByteForAnElement) {
  const auto ranks = collectives::MakeSelfCommunicator();
  const auto session = Connect(0, 1);
  const auto state_bytes = [&](DataType type) {
    auto engine = Create(session.get(), ranks.get(), type, Placement::kAuto);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return (*engine)->GetStatistics()->model_state_bytes;
  };
  const uint64_t in_8_bits = state_bytes(DataType::kInt8);
  EXPECT_EQ(state_bytes(DataType::kUint8), in_8_bits);
  // Chunks are whole extents of 4 KiB: 5000 bytes take two, 10000 three.
  EXPECT_EQ(state_bytes(DataType::kFloat16) - in_8_bits, 4096u);
}

TEST_F(EngineFrozenTest, TypeThatIsNotTrained_IsRefusedForATrainedParameter) {
  const auto ranks = collectives::MakeSelfCommunicator();
  const auto session = Connect(0, 1);
  const absl::Status status =
      Engine::Create(session.get(), ranks.get(),
                     {{.name = "head", .shape = {8}, .data_type = DataType::kFloat16}}, {})
          .status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("'head' is of fp16"), HasSubstr("freeze it")));
}

TEST_F(EngineFrozenTest, ValueThatTheTypeDoesNotHave_IsRefusedByElementAndName) {
  const auto ranks = collectives::MakeSelfCommunicator();
  const auto session = Connect(0, 1);
  auto engine = Create(session.get(), ranks.get(), DataType::kInt8, Placement::kAuto);
  ASSERT_TRUE(engine.ok()) << engine.status();
  for (const float bad : {0.5F, 128.0F, -129.0F, std::numeric_limits<float>::quiet_NaN()}) {
    const absl::Status filled = (*engine)->Initialize([&](ParameterId id, std::span<float> values) {
      if (id == kBaseId) values[17] = bad;
      return absl::OkStatus();
    });
    EXPECT_TRUE(absl::IsInvalidArgument(filled)) << bad << ": " << filled;
    EXPECT_THAT(std::string(filled.message()),
                AllOf(HasSubstr("element 17 of 'base'"), HasSubstr("int8")));
    const std::vector<float> values = {1, bad};
    const absl::Status written = (*engine)->WriteShard(kBaseId, StateKind::kMaster, 3, values);
    EXPECT_TRUE(absl::IsInvalidArgument(written)) << bad << ": " << written;
    EXPECT_THAT(std::string(written.message()), HasSubstr("element 4 of 'base'"));
  }
  EXPECT_TRUE((*engine)->health().ok()) << (*engine)->health();
}

TEST_F(EngineFrozenTest, GradientOfATypeThatIsNotTrained_IsRefused) {
  const auto ranks = collectives::MakeSelfCommunicator();
  const auto session = Connect(0, 1);
  auto engine = Create(session.get(), ranks.get(), DataType::kInt8, Placement::kAuto);
  ASSERT_TRUE(engine.ok()) << engine.status();
  ASSERT_TRUE((*engine)->BeginMicroBatch().ok());
  const std::vector<std::byte> gradient(2 * kAdapter);
  const absl::Status added = (*engine)->AddGradient(kAdapterId, gradient, DataType::kFloat16);
  EXPECT_TRUE(absl::IsInvalidArgument(added)) << added;
  EXPECT_THAT(std::string(added.message()), HasSubstr("give it in bf16 or fp32"));
}

}  // namespace
}  // namespace geminid::zero
