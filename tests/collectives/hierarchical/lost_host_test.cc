// Ranks on hosts with networks of their own. The test loses one of the hosts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/hierarchical/hierarchical_communicator.h"
#include "geminid/connect.h"
#include "tests/base/network_hosts.h"
#include "tests/collectives/forked_ranks.h"
#include "tests/collectives/hierarchical/hierarchical_world.h"
#include "tests/collectives/operations.h"
#include "tests/collectives/world.h"

namespace geminid::collectives {
namespace {

using base::NetworkHosts;
using std::chrono::steady_clock;
using testing::ContainsRegex;

constexpr std::chrono::seconds kPromptly{2};  // the bound on noticing a death
constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr int kRanksEach = 2;
// TCP would send again after 0.2 s, 0.6 s and 1.4 s.
constexpr std::chrono::milliseconds kMoment{600};
constexpr std::chrono::milliseconds kLongestMoment{750};

// Each host has all ports to itself, but several jobs may run at once.
struct Job {
  static uint16_t NextPort() {
    static uint16_t next = 29500;
    return next++;
  }
  std::string name = UniqueName();
  uint16_t port = NextPort();
};

// Reports after the first meeting, and continues until a meeting fails.
absl::Status MeetUntilItFails(Communicator& c, const ForkedRanks::Ready& ready) {
  absl::Status status = c.Barrier();
  ready();
  while (status.ok()) status = c.Barrier();
  return status;
}

// Operations by name. A job of its own tries each, and all jobs run at once.
using Calls = std::map<std::string, CollectiveCall>;

// The operations to try with the loss of this host. Together the hosts cover all operations.
template <class Operations>
Operations ShareOf(int host, int hosts, const Operations& all) {
  Operations share;
  int i = 0;
  for (const auto& operation : all) {
    if (i++ % hosts == host) share.insert(operation);
  }
  return share;
}

class LostHost : public testing::Test {
 protected:
  void Make(int hosts) {
    auto made = NetworkHosts::Make(hosts);
    if (!made.ok() && NetworkHosts::MayBeSkipped()) GTEST_SKIP() << made.status();
    ASSERT_TRUE(made.ok()) << made.status();
    hosts_ = *std::move(made);
  }
  int World() const { return hosts_->count() * kRanksEach; }
  static int HostOf(int rank) { return rank / kRanksEach; }
  std::vector<int> RanksBut(int host) const {
    std::vector<int> ranks;
    for (int r = 0; r < World(); ++r) {
      if (HostOf(r) != host) ranks.push_back(r);
    }
    return ranks;
  }
  // Runs in a child, on the rank's host.
  absl::StatusOr<std::unique_ptr<Communicator>> Enter(int rank, const Job& job,
                                                      const HierarchyOptions& hierarchy) const {
    if (absl::Status s = hosts_->Enter(HostOf(rank)); !s.ok()) return s;
    return ConnectHierarchical(rank, World(),
                               {.network = {.host = NetworkHosts::NameOf(0),
                                            .port = job.port,
                                            .job = job.name,
                                            .timeout = kPatience,
                                            .connect_timeout = kPatience},
                                .hierarchy = hierarchy});
  }
  // Causes the loss of the host on which these jobs have ranks.
  using Jobs = std::map<std::string, std::unique_ptr<ForkedRanks>>;
  using Loss = std::function<void(const Jobs& jobs, int host)>;
  // Ends when the ranks on the other hosts have reported promptly that they noticed the loss.
  void Lose(int victim_host, const Jobs& jobs, const Loss& loss);
  void LoseAndShrink(int victim_host, const Calls& calls, const std::string& words,
                     const Loss& loss);
  std::string BitsOver(int hosts, const HierarchyOptions& hierarchy);

  Loss CutsTheWire() const {
    return [this](const Jobs&, int host) { EXPECT_TRUE(hosts_->Cut(host).ok()); };
  }

  std::unique_ptr<NetworkHosts> hosts_;
};

// Cases without a loss. A suite of its own, which ctest may run in parallel with the other.
class HostsTogether : public LostHost {};

void LostHost::Lose(int victim_host, const Jobs& jobs, const Loss& loss) {
  for (const auto& [name, ranks] : jobs) {
    for (int r = 0; r < World(); ++r) ranks->AwaitReady(r);
  }
  loss(jobs, victim_host);
  const auto lost = steady_clock::now();
  for (const auto& [name, ranks] : jobs) {
    for (const int r : RanksBut(victim_host)) {
      EXPECT_LT(ranks->AwaitReady(r) - lost, kPromptly) << name << " of rank " << r;
    }
  }
}

void LostHost::LoseAndShrink(int victim_host, const Calls& calls, const std::string& words,
                             const Loss& loss) {
  const int victim = victim_host * kRanksEach;
  Jobs jobs;
  for (const auto& [name, call] : calls) {
    const Job job;
    const auto body = [&, call = call](int rank, const ForkedRanks::Ready& ready) -> std::string {
      auto c = Enter(rank, job, {});
      if (!c.ok()) return Text(c.status());
      if (absl::Status s = (*c)->Barrier(); !s.ok()) return Text(s);
      ready();
      if (HostOf(rank) == victim_host) {
        for (;;) ::pause();
      }
      absl::Status status = call(**c, victim);
      while (status.ok()) status = (*c)->Barrier();
      ready();
      return absl::StrCat(Text(status), " | ", Use((*c)->Shrink()));
    };
    jobs[name] = std::make_unique<ForkedRanks>(World(), body);
  }
  Lose(victim_host, jobs, loss);
  const std::vector<int> left = RanksBut(victim_host);
  for (const auto& [name, ranks] : jobs) {
    SCOPED_TRACE(absl::StrCat(name, " without host ", victim_host));
    for (const int r : left) {
      const std::string result = ranks->Result(r);
      EXPECT_THAT(result, ContainsRegex("^UNAVAILABLE: (nothing was heard from )?rank ")) << r;
      EXPECT_THAT(result,
                  ContainsRegex(absl::StrCat("rank [", victim, "-", victim + 1, "]", words)));
      EXPECT_THAT(result, testing::EndsWith(absl::StrCat(" | good: ", absl::StrJoin(left, ","))));
    }
  }
}

TEST_F(LostHost, OfWhichAllRanksAreKilledInAnyOperation_IsNamedAndLeftOut) {
  Make(3);
  if (hosts_ == nullptr) return;
  for (int host = 0; host < hosts_->count(); ++host) {
    LoseAndShrink(host, ShareOf(host, hosts_->count(), CollectiveCalls()), " died",
                  [](const Jobs& jobs, int lost) {
                    for (const auto& [name, ranks] : jobs) {
                      for (int local = 0; local < kRanksEach; ++local) {
                        ranks->Kill(lost * kRanksEach + local);
                      }
                    }
                  });
  }
}

TEST_F(LostHost, WhoseWireIsCutInAnyOperation_IsNamedAndLeftOut) {
  Make(3);
  if (hosts_ == nullptr) return;
  for (int host = 0; host < hosts_->count(); ++host) {
    const std::string words = absl::StrCat(" at ", NetworkHosts::NameOf(host), " for ");
    LoseAndShrink(host, ShareOf(host, hosts_->count(), CollectiveCalls()), words, CutsTheWire());
    EXPECT_TRUE(hosts_->Heal(host).ok());
  }
}

// All ranks are in the middle of the operation, with bytes on the wire.
TEST_F(LostHost, WhoseWireIsCutAmidAnyOperation_IsNamedAndLeftOut) {
  Make(3);
  if (hosts_ == nullptr) return;
  for (int host = 0; host < hosts_->count(); ++host) {
    Jobs jobs;
    for (const auto& [name, operation] : ShareOf(host, hosts_->count(), CheckedOperations())) {
      const Job job;
      const auto body = [&, operation = operation](int rank,
                                                   const ForkedRanks::Ready& ready) -> std::string {
        auto c = Enter(rank, job, {});
        if (!c.ok()) return Text(c.status());
        absl::Status status;
        for (int step = 0; status.ok(); ++step) {
          status = operation(**c, step);
          if (step == 3) ready();
        }
        ready();
        return absl::StrCat(Text(status), " | ", Use((*c)->Shrink()));
      };
      jobs[name] = std::make_unique<ForkedRanks>(World(), body);
    }
    Lose(host, jobs, CutsTheWire());
    const std::vector<int> left = RanksBut(host);
    const std::string words =
        absl::StrCat("^UNAVAILABLE: nothing was heard from rank [", host * kRanksEach, "-",
                     host * kRanksEach + 1, "] at ", NetworkHosts::NameOf(host),
                     " for .* [|] good: ", absl::StrJoin(left, ","), "$");
    for (const auto& [name, ranks] : jobs) {
      SCOPED_TRACE(absl::StrCat(name, " without host ", host));
      for (const int r : left) EXPECT_THAT(ranks->Result(r), ContainsRegex(words));
    }
    EXPECT_TRUE(hosts_->Heal(host).ok());
  }
}

TEST_F(HostsTogether, OfWhichOneWireIsCutForAMoment_StayTogether) {
  Make(2);
  if (hosts_ == nullptr) return;
  std::vector<std::chrono::duration<double>> longer;
  for (int host = 0; host < hosts_->count() && longer.size() < 10;) {
    const Job job;
    ForkedRanks ranks(World(), [&](int rank, const ForkedRanks::Ready& ready) -> std::string {
      auto c = Enter(rank, job, {});
      if (!c.ok()) return Text(c.status());
      return Text(MeetUntilItFails(**c, ready));
    });
    for (int r = 0; r < World(); ++r) ranks.AwaitReady(r);
    const auto cut = steady_clock::now();
    EXPECT_TRUE(hosts_->Cut(host).ok());
    bool lost = ranks.SaysSomethingWithin(0, kMoment);
    EXPECT_TRUE(hosts_->Heal(host).ok());
    const auto time = steady_clock::now() - cut;
    lost = lost || ranks.SaysSomethingWithin(0, kPromptly);
    // The test's own process was delayed, so the cut was too long.
    if (lost && time > kLongestMoment) {
      longer.push_back(time);
      continue;
    }
    EXPECT_FALSE(lost) << ranks.Result(0);
    ++host;
  }
  EXPECT_LT(longer.size(), 10u) << "the last one took " << longer.back().count() << " s";
}

// If one of two hosts is lost, a group of one host remains, which communicates through memory.
TEST_F(LostHost, OfTwo_LeavesTheOther) {
  Make(2);
  if (hosts_ == nullptr) return;
  for (const int host : {0, 1}) {
    LoseAndShrink(host, {{"AllReduce", CollectiveCalls().at("AllReduce")}}, " at 10.78.0.",
                  CutsTheWire());
    EXPECT_TRUE(hosts_->Heal(host).ok());
  }
}

// Neither half can know which of the two is the world.
TEST_F(LostHost, InAPartition_EachHalfNamesTheOther) {
  Make(4);
  if (hosts_ == nullptr) return;
  const Job job;
  ForkedRanks ranks(World(), [&](int rank, const ForkedRanks::Ready& ready) -> std::string {
    auto c = Enter(rank, job, {});
    if (!c.ok()) return Text(c.status());
    const absl::Status status = MeetUntilItFails(**c, ready);
    ready();
    return absl::StrCat(Text(status), " | ", Use((*c)->Shrink()));
  });
  for (int r = 0; r < World(); ++r) ranks.AwaitReady(r);
  ASSERT_TRUE(hosts_->Part(2).ok());
  const auto parted = steady_clock::now();
  for (int r = 0; r < World(); ++r) EXPECT_LT(ranks.AwaitReady(r) - parted, kPromptly) << r;
  for (int r = 0; r < World(); ++r) {
    const std::string result = ranks.Result(r);
    const bool with_zero = r < World() / 2;
    EXPECT_THAT(result,
                ContainsRegex(with_zero ? "nothing was heard from rank [4-7] at 10.78.0.[34]"
                                        : "nothing was heard from rank 0 at 10.78.0.1"));
    EXPECT_THAT(result, testing::EndsWith(with_zero ? " | good: 0,1,2,3" : " | good: 4,5,6,7"));
  }
}

// A rank's values for sums. Their order is visible in the bits of a sum.
std::vector<float> ValuesOf(int rank, size_t count) {
  std::vector<float> values(count);
  uint32_t state = static_cast<uint32_t>(rank) * 2654435761u + 1;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(state)) * 1e-5f;
  }
  return values;
}

std::string BitsOf(Communicator& c) {
  constexpr size_t kEach = 50'000;
  const size_t count = kEach * static_cast<size_t>(c.WorldSize());
  const std::vector<float> in = ValuesOf(c.Rank(), count);
  std::vector<float> sum(count), part(kEach), parts(count);
  if (absl::Status s = c.AllReduce(in, sum); !s.ok()) return Text(s);
  if (absl::Status s = c.ReduceScatter(in, part); !s.ok()) return Text(s);
  if (absl::Status s = c.AllGather(part, parts); !s.ok()) return Text(s);
  uint64_t hash = 14695981039346656037u;
  for (const std::vector<float>* all : {&sum, &parts}) {
    for (const float value : *all) {
      uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof(bits));
      hash = (hash ^ bits) * 1099511628211u;
    }
  }
  return absl::StrCat(absl::Hex(hash));
}

// The results of all ranks, which must be equal.
std::string LostHost::BitsOver(int hosts, const HierarchyOptions& hierarchy) {
  const Job job;
  ForkedRanks ranks(World(), [&](int rank, const ForkedRanks::Ready&) -> std::string {
    auto c = Enter(rank, job, hierarchy);
    return c.ok() ? BitsOf(**c) : Text(c.status());
  });
  const std::string bits = ranks.Result(0);
  for (int r = 1; r < hosts * kRanksEach; ++r) EXPECT_EQ(ranks.Result(r), bits);
  return bits;
}

std::string BitsOfOneHost(int world) {
  std::string bits;
  Communicators communicators = LocalBackend().connect(world, kPatience);
  ForEachRank(communicators, [&](Communicator& c) {
    const std::string own = BitsOf(c);
    if (c.Rank() == 0) bits = own;
  });
  return bits;
}

TEST_F(HostsTogether, ThreeAndFour_HaveTheBitsOfOne) {
  for (const int hosts : {3, 4}) {
    Make(hosts);
    if (hosts_ == nullptr) return;
    const std::string measured = BitsOver(hosts, {});
    const std::string chained = BitsOver(hosts, FinelyCut());
    const std::string expected = BitsOfOneHost(World());
    EXPECT_EQ(measured, expected);
    EXPECT_EQ(chained, expected);
  }
}

// Heartbeats share the wire with the ranks' messages, which queue there and are lost.
TEST_F(HostsTogether, WithSlowWires_StayTogether) {
  Make(2);
  if (hosts_ == nullptr) return;
  for (const int host : {0, 1}) ASSERT_TRUE(hosts_->Slow(host, "8mbit").ok());
  const std::string flat = BitsOver(2, {.costs = LinkCosts{}});
  const std::string chained = BitsOver(2, FinelyCut());
  const std::string expected = BitsOfOneHost(World());
  EXPECT_EQ(flat, expected);
  EXPECT_EQ(chained, expected);
}

// The variables that launchers give the ranks of a job on two hosts.
TEST_F(HostsTogether, OfTorchrunAndSrun_FindEachOther) {
  Make(2);
  if (hosts_ == nullptr) return;
  for (const bool by_srun : {false, true}) {
    ForkedRanks ranks(World(), [&](int rank, const ForkedRanks::Ready&) -> std::string {
      const auto set = [](const char* name, const auto& value) {
        ::setenv(name, absl::StrCat(value).c_str(), 1);
      };
      set(by_srun ? "SLURM_PROCID" : "RANK", rank);
      set(by_srun ? "SLURM_NTASKS" : "WORLD_SIZE", World());
      set(by_srun ? "SLURM_LOCALID" : "LOCAL_RANK", rank % kRanksEach);
      set(by_srun ? "SLURM_STEP_NUM_NODES" : "LOCAL_WORLD_SIZE", 2);
      set(by_srun ? "SLURM_JOB_ID" : "TORCHELASTIC_RUN_ID", 77);
      if (by_srun) set("SLURM_STEP_ID", 0);
      if (!by_srun) set("TORCHELASTIC_USE_AGENT_STORE", "True");
      set("MASTER_ADDR", NetworkHosts::NameOf(0));
      set("MASTER_PORT", 29500);
      if (absl::Status s = hosts_->Enter(HostOf(rank)); !s.ok()) return Text(s);
      auto info = FromEnvironment();
      if (!info.ok()) return Text(info.status());
      auto c = Connect(*info);
      if (!c.ok()) return Text(c.status());
      std::vector<float> values = {static_cast<float>(rank)};
      if (absl::Status s = (*c)->AllReduce(values, values); !s.ok()) return Text(s);
      return absl::StrCat((*c)->BackendName(), " ", values[0]);
    });
    for (int r = 0; r < World(); ++r) EXPECT_EQ(ranks.Result(r), "hierarchical 6");
  }
}

}  // namespace
}  // namespace geminid::collectives
