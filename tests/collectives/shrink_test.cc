// Groups that the remaining ranks form again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/local/local_communicator.h"
#include "tests/collectives/doors.h"
#include "tests/collectives/forked_ranks.h"
#include "tests/collectives/operations.h"
#include "tests/collectives/world.h"

namespace geminid::collectives {
namespace {

using testing::HasSubstr;

constexpr std::chrono::seconds kPromptly{2};  // the bound on noticing a death

class Shrink : public testing::TestWithParam<std::string> {
 protected:
  static std::unique_ptr<Door> MakeDoor() { return MakeDoorOf(GetParam()); }
};

// This operation may not tell all ranks of the death, such as senders to a root. They learn of it
// in the next one.
void KillAndShrink(std::unique_ptr<Door> door, int victim, CollectiveCall operation) {
  ForkedRanks ranks(kRanks, [&](int rank, const ForkedRanks::Ready& ready) -> std::string {
    auto c = door->Enter(rank);
    if (!c.ok()) return Text(c.status());
    if (absl::Status s = (*c)->Barrier(); !s.ok()) return Text(s);
    if (rank == victim) {
      ready();
      for (;;) ::pause();
    }
    ready();
    absl::Status status = operation(**c, victim);
    while (status.ok()) status = (*c)->Barrier();
    const std::string words = Text(status);
    ready();
    return absl::StrCat(words, " | ", Use((*c)->Shrink()), " | ", Text((*c)->Barrier()) == words);
  });
  for (int r = 0; r < kRanks; ++r) ranks.AwaitReady(r);
  const auto killed = std::chrono::steady_clock::now();
  ranks.Kill(victim);
  std::vector<int> left;
  for (int r = 0; r < kRanks; ++r) {
    if (r == victim) continue;
    left.push_back(r);
    EXPECT_LT(ranks.AwaitReady(r) - killed, kPromptly) << r;
  }
  for (const int r : left) {
    EXPECT_EQ(ranks.Result(r),
              absl::StrCat("UNAVAILABLE: rank ", victim,
                           " died; start it again and connect a new communicator | good: ",
                           absl::StrJoin(left, ","), " | 1"));
  }
}

TEST_P(Shrink, AfterADeathInAnyOperation_MakesAGroupOfTheOthers) {
  int victim = 0;
  for (const auto& [name, operation] : CollectiveCalls()) {
    SCOPED_TRACE(absl::StrCat(name, ", victim ", victim));
    KillAndShrink(MakeDoor(), victim, operation);
    victim = (victim + 1) % kRanks;
  }
}

// Rank 0 coordinates some groups.
TEST_P(Shrink, AfterTheDeathOfRankZero_MakesAGroupOfTheOthers) {
  for (const char* name : {"AllReduce", "Barrier", "SendReceive"}) {
    SCOPED_TRACE(name);
    KillAndShrink(MakeDoor(), 0, CollectiveCalls().at(name));
  }
}

// The second rank dies while the others wait for it.
TEST_P(Shrink, OfRanksOfWhichAnotherDies_LeavesBothOut) {
  for (const auto& [first, second] : {std::pair{0, 1}, std::pair{0, 3}, std::pair{2, 0}}) {
    SCOPED_TRACE(absl::StrCat(first, " and ", second));
    auto door = MakeDoor();
    ForkedRanks ranks(kRanks, [&](int rank, const ForkedRanks::Ready& ready) -> std::string {
      auto c = door->Enter(rank);
      if (!c.ok()) return Text(c.status());
      if (absl::Status s = (*c)->Barrier(); !s.ok()) return Text(s);
      ready();
      if (rank == first) {
        for (;;) ::pause();
      }
      if ((*c)->Barrier().ok()) return "no failure";
      ready();
      if (rank == second) {
        for (;;) ::pause();
      }
      return Use((*c)->Shrink());
    });
    for (int r = 0; r < kRanks; ++r) ranks.AwaitReady(r);
    ranks.Kill(first);
    std::vector<int> left;
    for (int r = 0; r < kRanks; ++r) {
      if (r == first) continue;
      ranks.AwaitReady(r);
      if (r != second) left.push_back(r);
    }
    ranks.Kill(second);
    for (const int r : left) {
      EXPECT_EQ(ranks.Result(r), absl::StrCat("good: ", absl::StrJoin(left, ",")));
    }
  }
}

TEST_P(Shrink, AgainAndAgain_EndsWithOneRank) {
  auto door = MakeDoor();
  ForkedRanks ranks(kRanks, [&](int rank, const ForkedRanks::Ready& ready) -> std::string {
    auto entered = door->Enter(rank);
    if (!entered.ok()) return Text(entered.status());
    std::unique_ptr<Communicator> c = *std::move(entered);
    std::string words;
    while (c->WorldSize() > 1) {
      if (absl::Status s = c->Barrier(); !s.ok()) return Text(s);
      ready();
      absl::Status status = c->Barrier();
      while (status.ok()) status = c->Barrier();
      auto survivors = c->Shrink();
      absl::StrAppend(&words, Use(survivors), "; ");
      if (!survivors.ok()) return words;
      c = std::move(survivors->communicator);
    }
    return words;
  });
  for (int victim = 0; victim + 1 < kRanks; ++victim) {
    for (int r = victim; r < kRanks; ++r) ranks.AwaitReady(r);
    ranks.Kill(victim);
  }
  EXPECT_EQ(ranks.Result(kRanks - 1), "good: 1,2,3; good: 1,2; good: 1; ");
}

TEST_P(Shrink, OfAHealthyGroup_FailsTheOthersAndHasThemAll) {
  auto door = MakeDoor();
  ForkedRanks ranks(kRanks, [&](int rank, const ForkedRanks::Ready&) -> std::string {
    auto c = door->Enter(rank);
    if (!c.ok()) return Text(c.status());
    absl::Status status;
    while (rank != 2 && status.ok()) status = (*c)->Barrier();
    return absl::StrCat(absl::StatusCodeToString(status.code()), " ", Use((*c)->Shrink()));
  });
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_EQ(ranks.Result(r), absl::StrCat(r == 2 ? "OK" : "ABORTED", " good: 0,1,2,3"));
  }
}

TEST_P(Shrink, OfRanksOfWhichOneHasLeft_DoesWithoutIt) {
  auto door = MakeDoor();
  ForkedRanks ranks(kRanks, [&](int rank, const ForkedRanks::Ready&) -> std::string {
    auto c = door->Enter(rank);
    if (!c.ok()) return Text(c.status());
    if (rank == 1) {
      c->reset();
      for (;;) ::pause();
    }
    if ((*c)->Barrier().ok()) return "no failure";
    return Use((*c)->Shrink());
  });
  for (const int r : {0, 2, 3}) EXPECT_EQ(ranks.Result(r), "good: 0,2,3");
}

TEST_P(Shrink, OfRanksOfWhichOneStaysAway_NamesIt) {
  std::string words;
  const auto only_it_is_named = [&](absl::Duration timeout) {
    auto door = MakeDoor();
    ForkedRanks ranks(kRanks, [&](int rank, const ForkedRanks::Ready&) -> std::string {
      auto c = door->Enter(rank);
      if (!c.ok()) return Text(c.status());
      if (rank == 0) {
        for (;;) ::pause();
      }
      (*c)->Abort("enough");
      (*c)->SetTimeout(timeout);
      return Use((*c)->Shrink());
    });
    bool only = true;
    words.clear();
    for (int r = 1; r < kRanks; ++r) {
      const std::string result = ranks.Result(r);
      EXPECT_THAT(result, HasSubstr("DEADLINE_EXCEEDED: Shrink: rank"));
      only = only && result.find("Shrink: rank 0 did not call it") != std::string::npos;
      absl::StrAppend(&words, result, "\n");
    }
    return only;
  };
  EXPECT_TRUE(WithTimeForAll(only_it_is_named)) << words;
}

// A subset of a group is a group, too.
TEST_P(Shrink, OfASubset_MakesAGroupOfItsRanks) {
  auto door = MakeDoor();
  ForkedRanks ranks(kRanks, [&](int rank, const ForkedRanks::Ready& ready) -> std::string {
    auto c = door->Enter(rank);
    if (!c.ok()) return Text(c.status());
    if (rank == 0) return Text((*c)->Barrier());
    const std::vector<int> members = {3, 1, 2};
    auto part = (*c)->Subset("part", members);
    if (!part.ok()) return Text(part.status());
    if (absl::Status s = (*part)->Barrier(); !s.ok()) return Text(s);
    ready();
    if (rank == 3) {
      for (;;) ::pause();
    }
    if ((*part)->Barrier().ok()) return "no failure";
    return Use((*part)->Shrink());
  });
  for (const int r : {1, 2, 3}) ranks.AwaitReady(r);
  ranks.Kill(3);
  EXPECT_THAT(ranks.Result(0), HasSubstr("rank 3 died"));
  for (const int r : {1, 2}) EXPECT_EQ(ranks.Result(r), "good: 1,2");
}

INSTANTIATE_TEST_SUITE_P(All, Shrink, testing::Values("shm", "tcp", "hosts", "uneven_hosts"),
                         [](const auto& instance) { return instance.param; });

// Over shared memory the survivors agree whenever a rank dies, also during Shrink.
TEST(ShrinkShm, OfRanksThatDieInTheMiddleOfIt_AlwaysAgrees) {
  for (int trial = 0; trial < 20; ++trial) {
    auto door = MakeDoorOf("shm");
    ForkedRanks ranks(kRanks, [&](int rank, const ForkedRanks::Ready& ready) -> std::string {
      auto entered = door->Enter(rank);
      if (!entered.ok()) return Text(entered.status());
      std::unique_ptr<Communicator> c = *std::move(entered);
      std::vector<int> names = {0, 1, 2, 3};
      while (c->WorldSize() > 2) {
        absl::Status status = c->Barrier();
        if (c->WorldSize() == kRanks) ready();
        while (status.ok()) status = c->Barrier();
        auto survivors = c->Shrink();
        if (!survivors.ok()) return Text(survivors.status());
        std::vector<int> left;
        for (const int r : survivors->ranks) left.push_back(names[static_cast<size_t>(r)]);
        names = left;
        c = std::move(survivors->communicator);
      }
      return absl::StrCat(absl::StrJoin(names, ","), " ", Text(c->Barrier()));
    });
    for (int r = 0; r < kRanks; ++r) ranks.AwaitReady(r);
    ranks.Kill(trial % 2);
    for (int i = 0; i < 10 * trial; ++i) std::this_thread::yield();  // at any point of Shrink
    ranks.Kill(2);
    const std::string left = trial % 2 == 0 ? "1,3 OK: " : "0,3 OK: ";
    EXPECT_EQ(ranks.Result(1 - trial % 2), left);
    EXPECT_EQ(ranks.Result(3), left);
  }
}

TEST(ShrinkLocal, OfThreadsOfWhichOneHasLeft_MakesAGroupOfTheOthers) {
  Communicators communicators = MakeLocalCommunicators(kRanks, kPatience);
  communicators[1].reset();
  communicators.erase(communicators.begin() + 1);
  ForEachRank(communicators, [](Communicator& c) {
    EXPECT_THAT(Text(c.Barrier()), HasSubstr("rank 1 left"));
    EXPECT_EQ(Use(c.Shrink()), "good: 0,2,3");
  });
}

TEST(ShrinkLocal, OfThreadsOfWhichOneStaysAway_NamesIt) {
  Communicators communicators = MakeLocalCommunicators(2, absl::Milliseconds(50));
  EXPECT_THAT(Use(communicators[0]->Shrink()), HasSubstr("Shrink: rank 1 did not call it"));
  // The rank comes late, and the next try of both makes the group.
  ForEachRank(communicators, [](Communicator& c) {
    c.SetTimeout(kPatience);
    EXPECT_EQ(Use(c.Shrink()), "good: 0,1");
  });
}

}  // namespace
}  // namespace geminid::collectives
