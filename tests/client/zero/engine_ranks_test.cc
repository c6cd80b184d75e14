// What one rank's error is to the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/local/local_communicator.h"
#include "collectives/shm/segment.h"
#include "collectives/shm/shm_communicator.h"
#include "geminid/session.h"
#include "geminid/zero.h"
#include "tests/daemon_env/daemon_env.h"

namespace geminid::zero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kElements = 2048;
constexpr uint64_t kArenaBytes = 64 << 10;
constexpr ParameterId kA{0}, kB{1};

class EngineRanksTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(env_.Start().ok()); }

  // Two ranks begin a micro-batch; what the second one is left with when the first has called
  // `first` and ended its engine.
  absl::Status SecondWhenFirst(const std::function<absl::Status(Engine*)>& first) {
    auto communicators = collectives::MakeLocalCommunicators(2);
    absl::Status left;
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        const auto session = Connect(static_cast<int>(rank));
        auto engine = MakeEngine(session.get(), communicators[rank].get());
        ASSERT_TRUE(engine.ok()) << engine.status();
        ASSERT_TRUE((*engine)->BeginMicroBatch().ok());
        ASSERT_TRUE((*engine)->Use(Pass::kForward, std::vector<ParameterId>{kA}).ok());
        if (rank == 0) {
          EXPECT_FALSE(first(engine->get()).ok());
        } else {
          left = (*engine)->Use(Pass::kForward, std::vector<ParameterId>{kB}).status();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(absl::IsAborted(left)) << left;
    return left;
  }

  std::unique_ptr<Session> Connect(int rank) const {
    ConnectOptions connect;
    connect.socket = env_.socket();
    connect.device_memory_bytes = kArenaBytes;
    connect.rank = connect.local_rank = rank;
    connect.world_size = 2;
    return *Session::Connect(connect);
  }
  static absl::StatusOr<std::unique_ptr<Engine>> MakeEngine(Session* session,
                                                            collectives::Communicator* ranks) {
    Options options;
    options.data_type = DataType::kFloat32;
    options.chunk_elements = kElements;
    options.state_placement = StatePlacement::kHost;
    return Engine::Create(
        session, ranks, {{.name = "a", .shape = {kElements}}, {.name = "b", .shape = {kElements}}},
        options);
  }

  geminid::testing::DaemonEnv env_;
};

TEST_F(EngineRanksTest, RankThatStopsForAnError_TellsItToTheOthers) {
  const auto allocates = [](uint64_t bytes) {
    return [bytes](Engine* engine) {
      auto operation = engine->Use(Pass::kForward, std::vector<ParameterId>{kA});
      return operation.ok() ? engine->workspace().Allocate(bytes).status() : operation.status();
    };
  };
  const auto misuses = [](Engine* engine) {
    return engine->Use(Pass::kForward, std::vector<ParameterId>{ParameterId{9}}).status();
  };
  const auto stopped = HasSubstr("rank 0: stopped in the middle of a step");
  EXPECT_THAT(std::string(SecondWhenFirst(allocates(kArenaBytes - (4 << 10))).message()),
              AllOf(stopped, HasSubstr("the model does not fit")));
  EXPECT_THAT(std::string(SecondWhenFirst(allocates(2 * kArenaBytes)).message()),
              AllOf(stopped, HasSubstr("no room for a workspace block")));
  EXPECT_THAT(std::string(SecondWhenFirst(misuses).message()),
              AllOf(stopped, HasSubstr("there is no parameter 9")));
}

TEST_F(EngineRanksTest, ErrorThatTheTrainerGotOver_IsNotWhyItStopped) {
  const absl::Status left = SecondWhenFirst([](Engine* engine) {
    EXPECT_FALSE(engine->Use(Pass::kForward, std::vector<ParameterId>{ParameterId{9}}).ok());
    EXPECT_TRUE(engine->Use(Pass::kForward, std::vector<ParameterId>{kA}).ok());
    return absl::UnknownError("the data ended");
  });
  EXPECT_THAT(std::string(left.message()),
              AllOf(HasSubstr("rank 0: stopped in the middle"), Not(HasSubstr("parameter 9"))));
}

// The ranks' own group and the engine's two, each once, on the session of the rank that made them.
TEST_F(EngineRanksTest, WhatRanksShare_IsInTheLedgerWhileTheEngineIsThere) {
  constexpr size_t kShared = static_cast<size_t>(ChunkKind::kShared);
  const uint64_t segment_bytes =
      collectives::SegmentLayout::Of({.world_size = 2, .slots = 4, .piece_bytes = 256 * 1024}).end;
  const std::string name = absl::StrCat("ledger ", getpid());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto ranks = collectives::ConnectShm(name, rank, 2);
      ASSERT_TRUE(ranks.ok()) << ranks.status();
      const auto session = Connect(rank);
      const auto shared = [&] { return session->GetMemoryUse()->host_bytes_by_kind[kShared]; };
      for (int i = 0; i < 2; ++i) {
        auto engine = MakeEngine(session.get(), ranks->get());
        ASSERT_TRUE(engine.ok()) << engine.status();
        EXPECT_EQ(shared(), rank == 0 ? 3 * segment_bytes : 0);
        const auto more = (*ranks)->Duplicate("the trainer's");
        EXPECT_EQ(shared(), rank == 0 ? 4 * segment_bytes : 0);
        EXPECT_EQ((*ranks)->Barrier(), absl::OkStatus());
        engine->reset();
        EXPECT_EQ(session->HostBytes().value(), 0u);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace geminid::zero
