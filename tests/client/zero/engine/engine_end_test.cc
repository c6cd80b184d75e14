// What the session of an engine that has ended has for the next engine.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/local/local_communicator.h"
#include "tests/client/zero/engine/engine_calls_fixture.h"

namespace geminid::zero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kArenaBytes = 256 << 10;
constexpr absl::Duration kHang = absl::Seconds(30);

absl::Status FillWithOnes(ParameterId, std::span<float> values) {
  std::ranges::fill(values, 1.0F);
  return absl::OkStatus();
}

class EngineEndTest : public EngineCallsTest {
 protected:
  void Connect(ConnectOptions connect) {
    rank_.communicator = collectives::MakeSelfCommunicator();
    auto session = Session::Connect(std::move(connect));
    ASSERT_TRUE(session.ok()) << session.status();
    rank_.session = *std::move(session);
  }

  // The session's next engine trains a step from ones.
  void ExpectNextEngineTrains() {
    MakeEngine(ThreeParameters(), SmallChunks());
    MustStep();
    EXPECT_LT(First(kA), 1);
  }
};

// Copies take so long that those of the last gradients are in progress when the engine ends.
TEST_F(EngineEndTest, EngineFreedWhileItsGradientsAreCopied_LeavesTheArenaToTheNext) {
  ConnectOptions connect = Connection(env_.socket(), kArenaBytes);
  connect.copy_latency_seconds = 0.05;
  Connect(std::move(connect));
  MakeEngine(ThreeParameters(), SmallChunks());
  ASSERT_TRUE(MicroBatch(engine_()).ok());
  rank_.engine.reset();
  ExpectNextEngineTrains();
}

// The block lies between two chunks that are held, where another engine would place chunks.
TEST_F(EngineEndTest, EngineFreedWithABlockBetweenChunks_LeavesTheArenaToTheNext) {
  constexpr uint64_t kThreeChunks = 24 << 10;
  Make(ThreeParameters(), SmallChunks(), kThreeChunks);
  ASSERT_TRUE(engine_().BeginMicroBatch().ok());
  std::vector<Operation> held;
  for (const ParameterId id : {kA, kB, kC}) {
    auto operation = engine_().Use(Pass::kForward, std::vector<ParameterId>{id});
    ASSERT_TRUE(operation.ok()) << operation.status();
    held.push_back(*std::move(operation));
  }
  ASSERT_TRUE(held[1].Finish().ok());
  const auto block = engine_().workspace().Allocate(4 << 10);
  ASSERT_TRUE(block.ok()) << block.status();
  rank_.engine.reset();
  ExpectNextEngineTrains();
}

TEST_F(EngineEndTest, ForkedChild_CannotUseOrHarmTheEngine) {
  Make(ThreeParameters(), SmallChunks());
  ASSERT_TRUE(engine_().BeginMicroBatch().ok());
  std::optional<Operation> open = *engine_().Use(Pass::kForward, std::vector<ParameterId>{kA});
  const pid_t child = fork();
  if (child == 0) {
    std::vector<float> values(8);
    const absl::Status answers[] = {
        engine_().health(),
        engine_().BeginMicroBatch(),
        engine_().Use(Pass::kForward, std::vector<ParameterId>{kB}).status(),
        engine_().ReadParameter(kA).status(),
        engine_().WriteShard(kA, StateKind::kMaster, 0, values),
        engine_().Step({.learning_rate = 0.1}).status(),
        engine_().GetStatistics().status(),
        engine_().Initialize(FillWithOnes),
        engine_().WaitSnapshot(),
        open->Finish()};
    int wrong = open->Weight(kA) != nullptr;
    for (const absl::Status& answer : answers) wrong += !absl::IsFailedPrecondition(answer);
    open.reset();
    rank_.engine.reset();
    rank_.session.reset();
    _exit(wrong);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  open.reset();
  ASSERT_EQ(engine_().CancelMicroBatch(), absl::OkStatus());
  ASSERT_NO_FATAL_FAILURE(MustStep());
  EXPECT_LT(First(kA), 1);
}

// An engine of two ranks, whose first rank ends within a micro-batch. So the second one's fails.
class FailedEngineTest : public EngineEndTest {
 protected:
  static Options OfTwoRanks() {
    Options options = SmallChunks();
    options.timeout = kHang;
    return options;
  }

  // Runs `then` on the second rank, with its session and its failed engine.
  void AfterAFailure(bool keep_on_death,
                     const std::function<void(Session&, std::unique_ptr<Engine>)>& then) {
    auto communicators = collectives::MakeLocalCommunicators(2, kHang);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        ConnectOptions connect = Connection(env_.socket(), kArenaBytes);
        connect.rank = connect.local_rank = rank;
        connect.world_size = 2;
        connect.keep_on_death = keep_on_death;
        auto session = Session::Connect(std::move(connect));
        ASSERT_TRUE(session.ok()) << session.status();
        auto engine = Engine::Create(session->get(), communicators[static_cast<size_t>(rank)].get(),
                                     ThreeParameters(), OfTwoRanks());
        ASSERT_TRUE(engine.ok()) << engine.status();
        ASSERT_TRUE((*engine)->Initialize(FillWithOnes).ok());
        ASSERT_TRUE((*engine)->BeginMicroBatch().ok());
        ASSERT_TRUE(Forward(**engine, {kA}).ok());
        if (rank == 0) return;
        ASSERT_FALSE(Forward(**engine, {kB}).ok());
        ASSERT_FALSE((*engine)->health().ok());
        then(**session, *std::move(engine));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

TEST_F(FailedEngineTest, OfASessionThatNobodyFollows_LeavesTheArenaToTheNext) {
  AfterAFailure(/*keep_on_death=*/false, [](Session& session, std::unique_ptr<Engine> failed) {
    failed.reset();
    const auto alone = collectives::MakeSelfCommunicator();
    auto next = Engine::Create(&session, alone.get(), ThreeParameters(), SmallChunks());
    ASSERT_TRUE(next.ok()) << next.status();
    ASSERT_TRUE((*next)->Initialize(FillWithOnes).ok());
    ASSERT_EQ(MicroBatch(**next), absl::OkStatus());
    EXPECT_TRUE((*next)->Step({.learning_rate = 0.1}).ok());
  });
}

// Its state is for the process that follows.
TEST_F(FailedEngineTest, OfASessionThatIsKept_HasTheNextOneRefused) {
  AfterAFailure(/*keep_on_death=*/true, [](Session& session, std::unique_ptr<Engine> failed) {
    failed.reset();
    const auto alone = collectives::MakeSelfCommunicator();
    const absl::Status next =
        Engine::Create(&session, alone.get(), ThreeParameters(), SmallChunks()).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(next)) << next;
    EXPECT_THAT(std::string(next.message()),
                AllOf(HasSubstr("failed"), HasSubstr("connect another session")));
  });
}

}  // namespace
}  // namespace geminid::zero
