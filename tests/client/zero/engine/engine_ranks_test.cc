// The effects of one rank's error on the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
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

  // Runs each rank on a thread, with a session of its own.
  using OfRank =
      std::function<void(size_t rank, Session* session, collectives::Communicator* ranks)>;
  void OnBothRanks(const OfRank& run) const {
    auto communicators = collectives::MakeLocalCommunicators(2);
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        const auto session = Connect(static_cast<int>(rank));
        run(rank, session.get(), communicators[rank].get());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // Two ranks begin a micro-batch. Returns the second rank's error after the first rank has called
  // `first` and ended its engine.
  absl::Status SecondWhenFirst(const std::function<absl::Status(Engine*)>& first) {
    absl::Status left;
    OnBothRanks([&](size_t rank, Session* session, collectives::Communicator* ranks) {
      auto engine = MakeEngine(session, ranks);
      ASSERT_TRUE(engine.ok()) << engine.status();
      ASSERT_TRUE((*engine)->BeginMicroBatch().ok());
      ASSERT_TRUE((*engine)->Use(Pass::kForward, std::vector<ParameterId>{kA}).ok());
      if (rank == 0) {
        EXPECT_FALSE(first(engine->get()).ok());
      } else {
        left = (*engine)->Use(Pass::kForward, std::vector<ParameterId>{kB}).status();
      }
    });
    EXPECT_TRUE(absl::IsAborted(left)) << left;
    return left;
  }

  std::unique_ptr<Session> Connect(int rank, uint64_t arena_bytes = kArenaBytes) const {
    ConnectOptions connect;
    connect.socket = env_.socket();
    connect.device_memory_bytes = arena_bytes;
    connect.rank = connect.local_rank = rank;
    connect.world_size = 2;
    return *Session::Connect(connect);
  }
  static absl::StatusOr<std::unique_ptr<Engine>> MakeEngine(Session* session,
                                                            collectives::Communicator* ranks,
                                                            Options options = {}) {
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

// The ledger has the ranks' own group and the engine's two groups, each once, on their maker's
// session.
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

// The results of both ranks' steps, if each gets its own input, and then both get the same.
class EngineStepInputTest : public EngineRanksTest {
 protected:
  std::vector<absl::Status> Steps(const Engine::StepInput& first, const Engine::StepInput& second) {
    std::vector<absl::Status> answers(2);
    OnBothRanks([&](size_t rank, Session* session, collectives::Communicator* ranks) {
      auto engine = MakeEngine(session, ranks);
      ASSERT_TRUE(engine.ok()) << engine.status();
      ASSERT_TRUE((*engine)->BeginMicroBatch().ok());
      answers[rank] = (*engine)->Step(rank == 0 ? first : second).status();
      if (answers[rank].ok()) return;
      const auto again = (*engine)->Step(first);
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_EQ(again->step, 1u);
    });
    return answers;
  }

  void ExpectNamed(const Engine::StepInput& first, const Engine::StepInput& second,
                   const std::string& in_first, const std::string& in_second) {
    for (const absl::Status& answer : Steps(first, second)) {
      EXPECT_TRUE(absl::IsInvalidArgument(answer)) << answer;
      EXPECT_THAT(std::string(answer.message()),
                  AllOf(HasSubstr("rank 0 has " + in_first), HasSubstr("rank 1 has " + in_second)));
    }
  }
};

TEST_F(EngineStepInputTest, ThatIsNotTheSameOnAllRanks_IsNamedAndChangesNothing) {
  const Engine::StepInput input = {.learning_rate = 0.1, .groups = {{.learning_rate = 0.1}}};
  for (const absl::Status& answer : Steps(input, input)) EXPECT_TRUE(answer.ok()) << answer;
  Engine::StepInput other = input;
  other.learning_rate = 0.2;
  ExpectNamed(input, other, "learning_rate 0.1", "learning_rate 0.2");
  other = input;
  other.groups[0].learning_rate = 0.3;
  ExpectNamed(input, other, "learning_rate of group 0 0.1", "learning_rate of group 0 0.29");
  other = input;
  other.groups[0].weight_decay = 0.5;
  ExpectNamed(input, other, "", "weight_decay of group 0 0.5");
  other = input;
  other.groups.clear();
  ExpectNamed(input, other, "the number of groups 1", "the number of groups 0");
  other = input;
  other.clip_norm = 3;
  ExpectNamed(input, other, "clip_norm 1", "clip_norm 3");
  other = input;
  other.data_position = 7;  // may differ between ranks
  for (const absl::Status& answer : Steps(input, other)) EXPECT_TRUE(answer.ok()) << answer;
}

TEST_F(EngineRanksTest, OptionsThatAreNotTheSameOnAllRanks_AreNamedByCreate) {
  std::vector<std::pair<std::string, std::function<void(Options*, std::vector<Parameter>*)>>> given;
  given.emplace_back("beta2 of adamw 0.5", [](Options* options, std::vector<Parameter>*) {
    options->optimizer = AdamWOptions{.beta2 = 0.5};
  });
  given.emplace_back("optimizer sgd", [](Options* options, std::vector<Parameter>*) {
    options->optimizer = SgdOptions{};
  });
  given.emplace_back("state_type bf16", [](Options* options, std::vector<Parameter>*) {
    options->state_type = DataType::kBFloat16;
  });
  given.emplace_back("clip_norm 7", [](Options* options, std::vector<Parameter>*) {
    options->clip_norm = 7;
  });
  given.emplace_back("update_without_gradient of parameter 'b' 0",
                     [](Options*, std::vector<Parameter>* parameters) {
                       (*parameters)[1].update_without_gradient = false;
                     });
  given.emplace_back("the number of parameters 1",
                     [](Options*, std::vector<Parameter>* parameters) { parameters->pop_back(); });
  for (const auto& [named, change] : given) {
    SCOPED_TRACE(named);
    OnBothRanks([&](size_t rank, Session* session, collectives::Communicator* ranks) {
      Options options;
      std::vector<Parameter> parameters = {{.name = "a", .shape = {kElements}},
                                           {.name = "b", .shape = {kElements}}};
      if (rank == 1) change(&options, &parameters);
      const auto engine = Engine::Create(session, ranks, parameters, options);
      EXPECT_TRUE(absl::IsInvalidArgument(engine.status())) << engine.status();
      EXPECT_THAT(std::string(engine.status().message()), HasSubstr("rank 1 has " + named));
    });
  }
}

// --- a refusal on one rank
// ------------------------------------------------------------------------

void ExpectRefusedOnTheSecond(size_t rank, const absl::Status& refused, absl::StatusCode code,
                              const std::string& words) {
  EXPECT_EQ(refused.code(), rank == 1 ? code : absl::StatusCode::kAborted) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr(words));
  EXPECT_EQ(std::string(refused.message()).starts_with("rank 1: "), rank == 0) << refused;
}

TEST_F(EngineRanksTest, RefusedArgumentsOfOneRank_AreSaidByAllWhoMayCallCreateAgain) {
  OnBothRanks([](size_t rank, Session* session, collectives::Communicator* ranks) {
    Options options;
    if (rank == 1) options.update_threads = 0;
    ExpectRefusedOnTheSecond(rank, MakeEngine(session, ranks, options).status(),
                             absl::StatusCode::kInvalidArgument, "update_threads is 0");
    const auto again = MakeEngine(session, ranks);
    EXPECT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(ranks->health(), absl::OkStatus());
  });
}

TEST_F(EngineRanksTest, OptionsThatDiffer_LeaveTheCommunicatorUsable) {
  OnBothRanks([](size_t rank, Session* session, collectives::Communicator* ranks) {
    Options options;
    options.clip_norm = rank == 1 ? 7 : 1;
    EXPECT_TRUE(absl::IsInvalidArgument(MakeEngine(session, ranks, options).status()));
    const auto again = MakeEngine(session, ranks);
    EXPECT_TRUE(again.ok()) << again.status();
  });
}

// Only while it allocates does the rank learn that its arena is too small.
TEST_F(EngineRanksTest, MemoryThatOneRankLacks_IsSaidByAllWhoMayCallCreateAgain) {
  auto communicators = collectives::MakeLocalCommunicators(2);
  const auto run = [&](size_t rank) {
    const auto session = Connect(static_cast<int>(rank), rank == 1 ? 8 << 10 : kArenaBytes);
    Options options;
    options.placement = Placement::kDevice;
    ExpectRefusedOnTheSecond(rank,
                             Engine::Create(session.get(), communicators[rank].get(),
                                            {{.name = "a", .shape = {kElements}}}, options)
                                 .status(),
                             absl::StatusCode::kResourceExhausted, "the model state does not fit");
    const auto again = MakeEngine(session.get(), communicators[rank].get());
    EXPECT_TRUE(again.ok()) << again.status();
  };
  std::thread second([&] { run(1); });
  run(0);
  second.join();
}

TEST_F(EngineRanksTest, RankThatComesLate_IsWaitedForAsLongAsTheEngineIsToldTo) {
  constexpr absl::Duration kOfCommunicators = absl::Milliseconds(100);  // the engine's: minutes
  auto communicators = collectives::MakeLocalCommunicators(2);
  for (auto& communicator : communicators) communicator->SetTimeout(kOfCommunicators);
  const auto train = [&](size_t rank, const std::function<void()>& before_each) {
    const auto session = Connect(static_cast<int>(rank));
    before_each();
    auto engine = MakeEngine(session.get(), communicators[rank].get());
    ASSERT_TRUE(engine.ok()) << engine.status();
    ASSERT_TRUE((*engine)->BeginMicroBatch().ok());
    before_each();
    const auto used = (*engine)->Use(Pass::kForward, std::vector<ParameterId>{kA}).status();
    EXPECT_TRUE(used.ok()) << used;
    before_each();
    const auto step = (*engine)->Step({.learning_rate = 0.1}).status();
    EXPECT_TRUE(step.ok()) << step;
  };
  std::thread late([&] {
    train(1, [&] {
      const base::Deadline passed = base::Deadline::In(3 * kOfCommunicators);
      while (!passed.Passed()) std::this_thread::yield();
    });
  });
  train(0, [] {});
  late.join();
}

}  // namespace
}  // namespace geminid::zero
