// An engine's statistics and health while a call hangs, after a refusal, and after its end. Also,
// values that one rank cannot get end the same call on all ranks.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "collectives/local/local_communicator.h"
#include "geminid/session.h"
#include "geminid/zero.h"
#include "tests/daemon_env/daemon_env.h"

namespace geminid::zero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kElements = 2048;
constexpr uint64_t kArenaBytes = 64 << 10;
constexpr ParameterId kA{0}, kNone{9};
// The deadline of a call without an answer. A test that passes never waits for it.
constexpr absl::Duration kHang = absl::Seconds(20);

absl::Status FillWithOnes(ParameterId, std::span<float> values) {
  std::ranges::fill(values, 1.0F);
  return absl::OkStatus();
}

class NoSink final : public SnapshotSink {
  absl::Status Write(ParameterId, StateKind, uint64_t, std::span<const float>) override {
    return absl::OkStatus();
  }
};

class EngineHealthTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(env_.Start().ok()); }

  // Runs each rank on a thread, with an engine that ends with the thread.
  void OnBothRanks(const std::function<void(size_t rank, Engine& engine)>& run,
                   const std::function<void()>& while_first_rank_reads_the_clock = nullptr) {
    auto communicators = collectives::MakeLocalCommunicators(2, kHang);
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        auto session = Session::Connect({.socket = env_.socket(),
                                         .rank = static_cast<int>(rank),
                                         .world_size = 2,
                                         .local_rank = static_cast<int>(rank),
                                         .device_memory_bytes = kArenaBytes});
        ASSERT_TRUE(session.ok()) << session.status();
        Options options = {.data_type = DataType::kFloat32, .chunk_elements = kElements};
        options.state_placement = StatePlacement::kHost;
        options.timeout = kHang;
        if (rank == 0 && while_first_rank_reads_the_clock) {
          options.clock = [&] {
            while_first_rank_reads_the_clock();
            return base::MonotonicNow();
          };
        }
        auto engine = Engine::Create(
            session->get(), communicators[rank].get(),
            {{.name = "a", .shape = {kElements}}, {.name = "b", .shape = {kElements}}}, options);
        ASSERT_TRUE(engine.ok()) << engine.status();
        run(rank, **engine);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  geminid::testing::DaemonEnv env_;
  std::barrier<> both_{2};  // an engine that ends within a micro-batch ends the other rank's engine
};

// The second rank sleeps until the first rank's other thread has its answers. The engine reads the
// clock when a wait begins, which shows that the first rank's call waits.
TEST_F(EngineHealthTest, WhileUseHangs_StatisticsAndHealthAnswer) {
  std::atomic<bool> in_use = false;
  absl::Notification waits, answered, returned;
  const auto note = [&] {
    if (in_use.exchange(false)) waits.Notify();
  };
  OnBothRanks(
      [&](size_t rank, Engine& engine) {
        ASSERT_TRUE(engine.Initialize(FillWithOnes).ok());
        ASSERT_TRUE(engine.BeginMicroBatch().ok());
        if (rank == 1) {
          answered.WaitForNotification();
          EXPECT_TRUE(engine.Use(Pass::kForward, std::vector<ParameterId>{kA}).ok());
          both_.arrive_and_wait();
          return;
        }
        std::thread other([&] {
          waits.WaitForNotification();
          const absl::StatusOr<Statistics> statistics = engine.GetStatistics();
          const absl::Status health = engine.health();
          EXPECT_FALSE(returned.HasBeenNotified()) << "it waited for the call that hangs";
          EXPECT_TRUE(statistics.ok()) << statistics.status();
          EXPECT_EQ(statistics->parameters, 2u * kElements);
          EXPECT_EQ(statistics->arena_bytes, kArenaBytes);
          EXPECT_GT(statistics->host_bytes, 0u);
          EXPECT_TRUE(health.ok()) << health;
          answered.Notify();
        });
        in_use = true;
        const auto operation = engine.Use(Pass::kForward, std::vector<ParameterId>{kA});
        returned.Notify();
        EXPECT_TRUE(operation.ok()) << operation.status();
        other.join();
        both_.arrive_and_wait();
      },
      note);
}

TEST_F(EngineHealthTest, AfterARefusal_IsOkAndTheEngineGoesOn) {
  OnBothRanks([this](size_t, Engine& engine) {
    ASSERT_TRUE(engine.BeginMicroBatch().ok());
    EXPECT_FALSE(engine.Use(Pass::kForward, std::vector<ParameterId>{kNone}).ok());
    EXPECT_TRUE(engine.health().ok()) << engine.health();
    EXPECT_TRUE(engine.Use(Pass::kForward, std::vector<ParameterId>{kA}).ok());
    both_.arrive_and_wait();
  });
}

TEST_F(EngineHealthTest, AfterAFailure_IsTheErrorOfAllCallsThatFollow) {
  OnBothRanks([](size_t rank, Engine& engine) {
    ASSERT_TRUE(engine.BeginMicroBatch().ok());
    ASSERT_TRUE(engine.Use(Pass::kForward, std::vector<ParameterId>{kA}).ok());
    if (rank == 0) return;  // the engine ends in the middle of its step
    const absl::Status failed =
        engine.Use(Pass::kForward, std::vector<ParameterId>{ParameterId{1}}).status();
    EXPECT_TRUE(absl::IsAborted(failed)) << failed;
    EXPECT_EQ(engine.health(), failed);
    EXPECT_EQ(engine.BeginMicroBatch(), failed);
    EXPECT_TRUE(engine.GetStatistics().ok());
  });
}

// --- values that cannot be had -------------------------------------------------------------------

TEST_F(EngineHealthTest, FillThatFailsOnOneRank_IsSaidByAllAndMayBeRepeated) {
  OnBothRanks([](size_t rank, Engine& engine) {
    const absl::Status filled = engine.Initialize([rank](ParameterId id, std::span<float>) {
      const bool fails = rank == 1 && id == ParameterId{1};
      return fails ? absl::DataLossError("the file ends") : absl::OkStatus();
    });
    if (rank == 1) {
      EXPECT_EQ(filled, absl::DataLossError("the file ends"));
    } else {
      EXPECT_TRUE(absl::IsAborted(filled)) << filled;
      EXPECT_THAT(std::string(filled.message()),
                  AllOf(HasSubstr("Initialize"), HasSubstr("rank 1"), HasSubstr("call it again")));
    }
    EXPECT_TRUE(engine.health().ok()) << engine.health();
    ASSERT_EQ(engine.Initialize(FillWithOnes), absl::OkStatus());
    EXPECT_EQ(engine.ReadParameter(ParameterId{1}).value(), std::vector<float>(kElements, 1.0F));
  });
}

void ExpectNothingIsComputed(Engine& engine) {
  const std::vector<ParameterId> a = {kA};
  for (const absl::Status& refused :
       {engine.BeginMicroBatch(), engine.Use(Pass::kEvaluate, a).status(),
        engine.StartSnapshot(std::make_shared<NoSink>())}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr("Initialize failed on rank 1"), HasSubstr("call it again")));
  }
  EXPECT_TRUE(engine.health().ok()) << engine.health();
}

TEST_F(EngineHealthTest, AfterAFillThatFailed_TrainingIsRefusedOnAllRanksUntilValuesAreSet) {
  OnBothRanks([this](size_t rank, Engine& engine) {
    const auto fill_that_fails = [rank](ParameterId, std::span<float>) {
      return rank == 1 ? absl::DataLossError("the file ends") : absl::OkStatus();
    };
    ASSERT_FALSE(engine.Initialize(fill_that_fails).ok());
    ExpectNothingIsComputed(engine);
    ASSERT_TRUE(engine.Initialize(FillWithOnes).ok());
    EXPECT_TRUE(engine.Use(Pass::kEvaluate, std::vector<ParameterId>{kA}).ok());
    ASSERT_FALSE(engine.Initialize(fill_that_fails).ok());
    ExpectNothingIsComputed(engine);
    ASSERT_TRUE(engine.Restore(engine.GetProgress().value()).ok());  // as a checkpoint does
    EXPECT_TRUE(engine.BeginMicroBatch().ok());
    both_.arrive_and_wait();
  });
}

TEST_F(EngineHealthTest, FillThatThrowsOnOneRank_LeavesAllRanksWithoutValues) {
  OnBothRanks([](size_t rank, Engine& engine) {
    const absl::Status filled =
        engine.InitializeShards([rank](ParameterId, uint64_t, std::span<float>) -> absl::Status {
          if (rank == 1) throw std::runtime_error("no such file");
          return absl::OkStatus();
        });
    EXPECT_EQ(filled.code(), rank == 1 ? absl::StatusCode::kCancelled : absl::StatusCode::kAborted);
    EXPECT_THAT(std::string(filled.message()),
                HasSubstr(rank == 1 ? "threw an exception: no such file" : "rank 1"));
    for (const absl::Status& refused :
         {engine.BeginMicroBatch(), engine.StartSnapshot(std::make_shared<NoSink>())}) {
      EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    }
    ASSERT_EQ(engine.Initialize(FillWithOnes), absl::OkStatus());
    EXPECT_EQ(engine.ReadParameter(kA).value(), std::vector<float>(kElements, 1.0F));
  });
}

TEST_F(EngineHealthTest, SinkThatThrows_EndsTheSnapshotAlone) {
  class Thrower final : public SnapshotSink {
    absl::Status Write(ParameterId, StateKind, uint64_t, std::span<const float>) override {
      throw std::runtime_error("no such folder");
    }
  };
  OnBothRanks([](size_t, Engine& engine) {
    ASSERT_TRUE(engine.Initialize(FillWithOnes).ok());
    ASSERT_EQ(engine.StartSnapshot(std::make_shared<Thrower>()), absl::OkStatus());
    const absl::Status ended = engine.WaitSnapshot();
    EXPECT_TRUE(absl::IsCancelled(ended)) << ended;
    EXPECT_THAT(std::string(ended.message()), HasSubstr("threw an exception: no such folder"));
    EXPECT_EQ(engine.StartSnapshot(std::make_shared<NoSink>()), absl::OkStatus());
    EXPECT_EQ(engine.WaitSnapshot(), absl::OkStatus());
  });
}

TEST_F(EngineHealthTest, FillOfShardsThatFailsOnOneRank_IsSaidByAllAndMayBeRepeated) {
  OnBothRanks([](size_t rank, Engine& engine) {
    const absl::Status filled =
        engine.InitializeShards([rank](ParameterId, uint64_t, std::span<float>) {
          return rank == 0 ? absl::NotFoundError("no such tensor") : absl::OkStatus();
        });
    EXPECT_EQ(filled.code(), rank == 0 ? absl::StatusCode::kNotFound : absl::StatusCode::kAborted);
    EXPECT_THAT(std::string(filled.message()),
                HasSubstr(rank == 0 ? "no such tensor" : "InitializeShards: the values of rank 0"));
    ASSERT_EQ(engine.InitializeShards([](ParameterId id, uint64_t, std::span<float> values) {
      return FillWithOnes(id, values);
    }),
              absl::OkStatus());
    EXPECT_EQ(engine.ReadParameter(kA).value(), std::vector<float>(kElements, 1.0F));
  });
}

}  // namespace
}  // namespace geminid::zero
