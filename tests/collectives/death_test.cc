// Ranks as processes: results across address spaces, and the effects of killing a rank.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "geminid/connect.h"
#include "tests/collectives/doors.h"
#include "tests/collectives/forked_ranks.h"
#include "tests/collectives/operations.h"
#include "tests/collectives/world.h"

namespace geminid::collectives {
namespace {

constexpr std::chrono::seconds kPromptly{2};  // the bound on noticing a death

class Processes : public testing::TestWithParam<std::string> {
 protected:
  static std::unique_ptr<Door> MakeDoor() { return MakeDoorOf(GetParam()); }
};

TEST_P(Processes, AllReduce_IsTheSameOnAll) {
  auto door = MakeDoor();
  ForkedRanks ranks(kRanks, [&](int rank, const ForkedRanks::Ready&) -> std::string {
    auto c = door->Enter(rank);
    if (!c.ok()) return Text(c.status());
    std::vector<double> values(100'000);
    std::iota(values.begin(), values.end(), rank);
    if (absl::Status s = (*c)->AllReduce(values, values); !s.ok()) return Text(s);
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] != static_cast<double>(kRanks * i + 6)) return absl::StrCat("wrong at ", i);
    }
    return "good";
  });
  for (int r = 0; r < kRanks; ++r) EXPECT_EQ(ranks.Result(r), "good");
}

// The operation of the survivors when the victim dies.
using Operation = absl::Status (*)(Communicator& c, int victim);

void KillWhileTheOthers(std::unique_ptr<Door> door, int victim, Operation operation) {
  ForkedRanks ranks(kRanks, [&](int rank, const ForkedRanks::Ready& ready) -> std::string {
    auto c = door->Enter(rank);
    if (!c.ok()) return Text(c.status());
    absl::Status status = (*c)->Barrier();
    if (rank == victim) {
      ready();
      for (;;) ::pause();
    }
    // Some ranks may still be in the barrier when the victim dies.
    if (status.ok()) status = operation(**c, victim);
    ready();
    // Every later call returns the same status.
    return (*c)->Barrier() == status ? Text(status) : "another answer: " + Text((*c)->Barrier());
  });
  ranks.AwaitReady(victim);
  const auto killed = std::chrono::steady_clock::now();
  ranks.Kill(victim);
  for (int r = 0; r < kRanks; ++r) {
    if (r == victim) continue;
    EXPECT_LT(ranks.AwaitReady(r) - killed, kPromptly) << r;
    EXPECT_EQ(ranks.Result(r),
              absl::StrCat("UNAVAILABLE: rank ", victim,
                           " died; start it again and connect a new communicator"));
  }
}

absl::Status Meet(Communicator& c, int) { return c.Barrier(); }
absl::Status ReduceMuch(Communicator& c, int) {
  std::vector<float> values(1'000'000);
  return c.AllReduce(values, values);
}
absl::Status ReceiveFromVictim(Communicator& c, int victim) {
  std::vector<float> values(10);
  return c.Receive(values, victim);
}
absl::Status ReceiveFromSurvivor(Communicator& c, int victim) {
  std::vector<float> values(10);
  int other = 0;
  while (other == c.Rank() || other == victim) ++other;
  return c.Receive(values, other);
}

TEST_P(Processes, KilledRank_EndsBarriers) { KillWhileTheOthers(MakeDoor(), 2, Meet); }
TEST_P(Processes, KilledRankZero_EndsBarriers) { KillWhileTheOthers(MakeDoor(), 0, Meet); }
TEST_P(Processes, KilledRank_EndsLongReductions) { KillWhileTheOthers(MakeDoor(), 1, ReduceMuch); }
TEST_P(Processes, KilledRank_EndsReceivesFromIt) {
  KillWhileTheOthers(MakeDoor(), 1, ReceiveFromVictim);
}
TEST_P(Processes, KilledRank_EndsReceivesFromOthers) {
  KillWhileTheOthers(MakeDoor(), 2, ReceiveFromSurvivor);
}

TEST_P(Processes, KilledAmidAnyOperation_NeverGiveAWrongResult) {
  for (const auto& [name, operation] : CheckedOperations()) {
    for (int trial = 0; trial < kRanks; ++trial) {
      SCOPED_TRACE(absl::StrCat(name, ", rank ", trial));
      const int victim = trial;
      auto door = MakeDoor();
      ForkedRanks ranks(kRanks, [&](int rank, const ForkedRanks::Ready& ready) -> std::string {
        auto c = door->Enter(rank);
        if (!c.ok()) return Text(c.status());
        for (int step = 0;; ++step) {
          if (absl::Status s = operation(**c, step); !s.ok()) return Text(s);
          if (step == trial && rank == victim) ready();
        }
      });
      ranks.AwaitReady(victim);
      ranks.Kill(victim);
      for (int r = 0; r < kRanks; ++r) {
        if (r == victim) continue;
        EXPECT_EQ(ranks.Result(r),
                  absl::StrCat("UNAVAILABLE: rank ", victim,
                               " died; start it again and connect a new communicator"));
      }
    }
  }
}

// All have connected when the first rank learns it, so no rank waits for the one that left.
TEST_P(Processes, RankThatLeavesOnceItHasConnected_EndsNobodysConnecting) {
  for (int trial = 0; trial < 10; ++trial) {
    auto door = MakeDoor();
    ForkedRanks ranks(kRanks, [&](int rank, const ForkedRanks::Ready&) -> std::string {
      auto c = door->Enter(rank);
      if (!c.ok()) return Text(c.status());
      if (rank == 1) return "left";
      // The others wait in the barrier until they learn that a rank is missing.
      return (*c)->Barrier().ok() ? "no failure" : Use((*c)->Shrink());
    });
    for (int r = 0; r < kRanks; ++r) EXPECT_EQ(ranks.Result(r), r == 1 ? "left" : "good: 0,2,3");
  }
}

TEST(ShmProcesses, AllKilled_LeaveTheNameFree) {
  ShmDoor door;
  for (int trial = 0; trial < 3; ++trial) {
    ForkedRanks ranks(kRanks, [&](int rank, const ForkedRanks::Ready& ready) -> std::string {
      auto c = door.Enter(rank);
      if (!c.ok() || !(*c)->Barrier().ok()) return "not connected";
      ready();
      for (;;) ::pause();
    });
    for (int r = 0; r < kRanks; ++r) ranks.AwaitReady(r);
    for (int r = 0; r < kRanks; ++r) ranks.Kill(r);
  }
}

// As for a user, only the launcher's variables are given.
TEST(Connect, FromRankInfo_PicksShmOnOneHost) {
  const std::string job = UniqueName();
  ForkedRanks ranks(kRanks, [&](int rank, const ForkedRanks::Ready&) -> std::string {
    RankInfo info{.rank = rank,
                  .world_size = kRanks,
                  .local_rank = rank,
                  .local_world_size = kRanks,
                  .job = job};
    auto c = Connect(info);
    if (!c.ok()) return Text(c.status());
    return absl::StrCat((*c)->BackendName(), " ", Text((*c)->Barrier()));
  });
  for (int r = 0; r < kRanks; ++r) EXPECT_EQ(ranks.Result(r), "shm OK: ");
}

// No option says that the ranks share a host. They find out.
TEST(HostsProcesses, HostsThatNobodyNames_AreFound) {
  HostsDoor door(HostsDoor::kAsTheMachineSays);
  ForkedRanks ranks(kRanks, [&](int rank, const ForkedRanks::Ready&) -> std::string {
    auto c = door.Enter(rank);
    if (!c.ok()) return Text(c.status());
    return absl::StrCat((*c)->BackendName(), " ", Text((*c)->Barrier()));
  });
  for (int r = 0; r < kRanks; ++r) EXPECT_EQ(ranks.Result(r), "shm OK: ");
}

INSTANTIATE_TEST_SUITE_P(All, Processes, testing::Values("shm", "tcp", "hosts", "uneven_hosts"),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace geminid::collectives
