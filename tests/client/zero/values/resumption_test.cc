// The step from which ranks resume, by their newest commit records. No killed process leaves these
// records.
#include "client/zero/values/resumption.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "client/zero/options/engine_setup.h"
#include "collectives/local/local_communicator.h"
#include "geminid/session.h"
#include "proto/shm/commit_layout.h"
#include "tests/daemon_env/daemon_env.h"

namespace geminid::zero {
namespace {

constexpr int kRanks = 2;

class ResumptionTest : public ::testing::Test {
 protected:
  using Outcome = absl::StatusOr<std::optional<Resumed>>;

  void SetUp() override { ASSERT_TRUE(env_.Start({.keep_time = "1h"}).ok()); }

  std::unique_ptr<Session> Connect(int rank) {
    auto session = Session::Connect({.socket = env_.socket(),
                                     .rank = rank,
                                     .world_size = kRanks,
                                     .local_rank = rank,
                                     .keep_on_death = true,
                                     .run = "run",
                                     .device_memory_bytes = 1 << 20});
    EXPECT_TRUE(session.ok()) << session.status();
    return *std::move(session);
  }

  static std::unique_ptr<StateStore> MakeStore(Session* session, const Layout& layout,
                                               bool resume) {
    auto store = StateStore::Create(session, layout, {.resume = resume, .noted_tensors = 1});
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }

  // A process that dies after it committed this step, which changed nothing. 0: there is none.
  void Leave(int rank, uint64_t step) {
    const auto session = Connect(rank);
    const auto ranks = collectives::MakeLocalCommunicators(kRanks);
    EngineSetup setup(session.get(), ranks[0].get(), {{.name = "a", .shape = {64}}}, {});
    ASSERT_TRUE(setup.MakeLayout().ok());
    const auto store = MakeStore(session.get(), setup.layout, /*resume=*/false);
    if (step > 0) {
      shm::CommitRecord record = {};
      record.step = step;
      record.next_loss_scale = 8.0 * static_cast<double>(step);
      record.overflow = 1;
      shm::WriteRecord(store->commit(), record);
      store->SetResumable(true);
    }
    session->LeaveToSuccessor();
  }

  Outcome Resume(int rank, collectives::Communicator* ranks, RunPosition* run) {
    const auto session = Connect(rank);
    EngineSetup setup(session.get(), ranks, {{.name = "a", .shape = {64}}}, {});
    EXPECT_TRUE(setup.MakeLayout().ok());
    auto links = RankLinks::Connect(session.get(), ranks, setup.parameters, setup.options,
                                    setup.layout, [](uint32_t) { return ""; });
    EXPECT_TRUE(links.ok()) << links.status();
    const auto store = MakeStore(session.get(), setup.layout, /*resume=*/true);
    GranuleOptimizer optimizer(setup.layout, setup.parameters, rank, setup.options);
    if (const auto* record = shm::NewestRecord(*store->commit())) run->epoch = record->epoch;
    return Resumption(setup, store.get(), &optimizer, links->get()).Resume(run);
  }

  // The outcomes of both ranks, whose previous processes had committed these steps.
  std::vector<Outcome> AfterSteps(uint64_t of_first, uint64_t of_second) {
    Leave(0, of_first);
    Leave(1, of_second);
    const auto ranks = collectives::MakeLocalCommunicators(kRanks);
    std::vector<Outcome> outcomes(kRanks, absl::UnknownError("not asked"));
    runs_.assign(kRanks, {});
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        outcomes[rank] = Resume(static_cast<int>(rank), ranks[rank].get(), &runs_[rank]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Outcome& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.status();
    return outcomes;
  }

  geminid::testing::DaemonEnv env_;
  std::vector<RunPosition> runs_;
};

TEST_F(ResumptionTest, RanksOneStepApart_GoOnFromTheLaterOne) {
  const std::vector<Outcome> outcomes = AfterSteps(5, 6);
  for (size_t rank = 0; rank < kRanks; ++rank) {
    ASSERT_TRUE(outcomes[rank]->has_value());
    EXPECT_EQ((**outcomes[rank]).step, 6u);
    EXPECT_EQ((**outcomes[rank]).was_behind, rank == 0);
    EXPECT_EQ(runs_[rank].step, 6u);
    EXPECT_EQ(runs_[rank].loss_scaler->scale, 48);
  }
}

// No rank can be so far ahead, because all ranks must have a step's gradients before any commits
// it.
TEST_F(ResumptionTest, RanksTwoStepsApart_BeginAnew) {
  for (const Outcome& outcome : AfterSteps(5, 7)) EXPECT_FALSE(outcome->has_value());
  EXPECT_EQ(runs_[0].step, 0u);
}

TEST_F(ResumptionTest, RankThatCommittedNothing_MakesAllBeginAnew) {
  for (const Outcome& outcome : AfterSteps(0, 1)) EXPECT_FALSE(outcome->has_value());
}

}  // namespace
}  // namespace geminid::zero
