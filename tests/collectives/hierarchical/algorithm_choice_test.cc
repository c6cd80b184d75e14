#include "collectives/hierarchical/algorithm_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/hierarchical/hierarchical_communicator.h"
#include "tests/collectives/hierarchical/hierarchical_world.h"

namespace geminid::collectives {
namespace {

const Hosts kTwoByTwo = {.count = 2, .ranks_each = 2};
// 10 Gb/s; messages take 50 us.
constexpr LinkCosts kEthernet = {.meeting_seconds = 5e-6,
                                 .exchange_seconds = 50e-6,
                                 .flat_exchange_seconds = 50e-6,
                                 .seconds_per_byte = 1 / 1.25e9};

Operation FloatsOf(OpKind kind, size_t bytes) {
  return {.kind = kind, .dtype = DType::kFloat32, .count = bytes / sizeof(float)};
}

bool Chains(OpKind kind, size_t bytes, const Hosts& hosts, const LinkCosts& costs) {
  const AlgorithmSeconds seconds = SecondsOf(FloatsOf(kind, bytes), hosts, {}, costs);
  return seconds.chain < seconds.flat;
}

// One block of 32 KiB lanes in two steps, against a scatter and a gather.
TEST(AlgorithmSeconds, OfAnAllReduceOfOneBlock_AddsUpByHand) {
  const double beta = kEthernet.seconds_per_byte, bytes = 64 * 1024;
  const AlgorithmSeconds seconds =
      SecondsOf(FloatsOf(OpKind::kAllReduce, 64 * 1024), kTwoByTwo, {}, kEthernet);
  EXPECT_DOUBLE_EQ(seconds.chain, 2 * (50e-6 + 2 * 5e-6 + bytes * beta));
  EXPECT_DOUBLE_EQ(seconds.flat, 50e-6 + bytes * beta + 50e-6 + 2 * 5e-6 + bytes / 2 * beta);
}

// 16 blocks, and the one step in which only the first host sends.
TEST(AlgorithmSeconds, OfALongAllReduce_IsThatOfItsBytesAndAStep) {
  const double bytes = 64 << 20;
  const LinkCosts bandwidth = {.seconds_per_byte = 1e-9};
  const AlgorithmSeconds seconds =
      SecondsOf(FloatsOf(OpKind::kAllReduce, 64 << 20), kTwoByTwo, {}, bandwidth);
  EXPECT_NEAR(seconds.chain, 33.0 / 32 * bytes * 1e-9, 1e-12);
  EXPECT_NEAR(seconds.flat, 1.5 * bytes * 1e-9, 1e-12);
}

TEST(WayChoice, OfGrowingSums_ChangesOnceFromMessagesToTheChain) {
  for (const OpKind kind : {OpKind::kAllReduce, OpKind::kReduce}) {
    bool chains = false;
    int changes = 0;
    for (size_t bytes = 1024; bytes <= size_t{64} << 20; bytes *= 2) {
      const bool now = Chains(kind, bytes, kTwoByTwo, kEthernet);
      changes += now != chains ? 1 : 0;
      chains = now;
    }
    EXPECT_TRUE(chains) << Name(kind);
    EXPECT_EQ(changes, 1) << Name(kind);
  }
}

// The longer a message takes to start, the more bytes are needed until fewer messages pay.
TEST(WayChoice, WithSlowerMessages_ComesToTheChainLater) {
  const auto first = [](double factor) {
    LinkCosts costs = kEthernet;
    costs.exchange_seconds *= factor;
    costs.flat_exchange_seconds *= factor;
    size_t bytes = 1024;
    while (!Chains(OpKind::kAllReduce, bytes, kTwoByTwo, costs)) bytes *= 2;
    return bytes;
  };
  EXPECT_LT(first(1), first(3));
  EXPECT_LT(first(3), first(10));
}

// Partial sums of 16-bit elements are twice as long, and two ranks on a host save too little.
TEST(WayChoice, OfHalfAsWideElementsOnTwoRanks_StaysWithMessagesForScatters) {
  Operation operation = FloatsOf(OpKind::kReduceScatter, 64 << 20);
  operation.dtype = DType::kBFloat16;
  const AlgorithmSeconds two = SecondsOf(operation, kTwoByTwo, {}, kEthernet);
  EXPECT_GT(two.chain, two.flat);
  const AlgorithmSeconds eight = SecondsOf(operation, {.count = 2, .ranks_each = 8}, {}, kEthernet);
  EXPECT_LT(eight.chain, eight.flat);
}

// Counts the bytes that all messages of an exchange put on the links of the hosts.
class Links {
 public:
  explicit Links(const Hosts& hosts)
      : hosts_(hosts), out_(static_cast<size_t>(hosts.count)), in_(out_) {}
  void Add(int from, int to, size_t bytes) {
    const int from_host = hosts_.HostOf(from), to_host = hosts_.HostOf(to);
    if (from_host == to_host) return;
    out_[static_cast<size_t>(from_host)] += static_cast<double>(bytes);
    in_[static_cast<size_t>(to_host)] += static_cast<double>(bytes);
  }
  double Busiest() const {
    return std::max(*std::max_element(out_.begin(), out_.end()),
                    *std::max_element(in_.begin(), in_.end()));
  }

 private:
  const Hosts hosts_;
  std::vector<double> out_, in_;
};

double FlatByMessages(const Operation& operation, const Hosts& hosts, const LinkCosts& costs) {
  const int ranks = hosts.ranks();
  const size_t width = SizeOf(operation.dtype);
  const Partition slices(operation.count, ranks);
  Links first(hosts), second(hosts);
  for (int from = 0; from < ranks; ++from) {
    if (operation.kind == OpKind::kReduce) {
      first.Add(from, operation.root_or_tag, operation.count * width);
      continue;
    }
    for (int to = 0; to < ranks; ++to) first.Add(from, to, slices.Count(to) * width);
    if (operation.kind != OpKind::kAllReduce) continue;
    for (int host = 0; host < hosts.count; ++host) {  // its sum, to each host
      second.Add(from, hosts.FirstOf(host), slices.Count(from) * width);
    }
  }
  double seconds = costs.flat_exchange_seconds + first.Busiest() * costs.seconds_per_byte;
  if (operation.kind == OpKind::kAllReduce) {
    seconds += costs.exchange_seconds + 2 * costs.meeting_seconds +
               second.Busiest() * costs.seconds_per_byte;
  }
  return seconds;
}

// Each block goes up through the hosts, and its sum goes where it is wanted. The order of messages
// follows from when each can be sent, not from the plan.
double ChainByMessages(const Operation& operation, const Hosts& hosts, const LinkCosts& costs) {
  const ChainPlan plan = PlanOf(operation, hosts, {});
  const size_t width = SizeOf(operation.dtype);
  const bool half = operation.dtype == DType::kBFloat16;
  const auto last = static_cast<size_t>(hosts.count - 1);
  std::vector<Links> steps;
  const auto add = [&](size_t step, int from_host, int to_host, size_t block, size_t element) {
    while (steps.size() <= step) steps.emplace_back(hosts);
    for (int local = 0; local < hosts.ranks_each; ++local) {
      steps[step].Add(hosts.RankAt(from_host, local), hosts.RankAt(to_host, local),
                      plan.LaneOf(block, local).count * element);
    }
  };
  for (size_t block = 0; block < plan.blocks(); ++block) {
    for (size_t host = 0; host < last; ++host) {
      add(block + host, static_cast<int>(host), static_cast<int>(host) + 1, block,
          half ? sizeof(float) : width);
    }
    if (plan.WantedOn(block) != ChainPlan::kEveryHost) {
      add(block + last, static_cast<int>(last), plan.WantedOn(block), block, width);
      continue;
    }
    for (size_t back = 0; back < last; ++back) {
      const int from = static_cast<int>(last - back);
      add(block + last + back, from, from - 1, block, width);
    }
  }
  double bytes = 0;
  for (const Links& step : steps) bytes += step.Busiest();
  return static_cast<double>(steps.size()) * (costs.exchange_seconds + 2 * costs.meeting_seconds) +
         bytes * costs.seconds_per_byte;
}

std::vector<LinkCosts> CostsOfManyNetworks() {
  std::vector<LinkCosts> all;
  for (const double exchange : {5e-6, 50e-6, 1e-3}) {
    for (const double all_at_once : {1.0, 5.0}) {
      for (const double bytes_per_second : {12.5e9, 1.25e9, 125e6}) {
        all.push_back({.meeting_seconds = 5e-6,
                       .exchange_seconds = exchange,
                       .flat_exchange_seconds = all_at_once * exchange,
                       .seconds_per_byte = 1 / bytes_per_second});
      }
    }
  }
  return all;
}

// Each way is often the better one. The choice agrees with counting messages, unless slices of
// unequal lengths outweigh the difference.
TEST(WayChoice, OverNetworksGroupsAndSizes_IsTheCheaperByMessages) {
  int chains = 0, flats = 0;
  const auto check = [&](const Operation& operation, const Hosts& hosts, const LinkCosts& costs) {
    SCOPED_TRACE(absl::StrCat(Name(operation.kind), " ", operation.count, " of ",
                              SizeOf(operation.dtype), " B to ", operation.root_or_tag, ", ",
                              hosts.count, " x ", hosts.ranks_each, ", ", costs.exchange_seconds,
                              " s, ", costs.seconds_per_byte, " s/B"));
    const double flat = FlatByMessages(operation, hosts, costs);
    const double chain = ChainByMessages(operation, hosts, costs);
    const AlgorithmSeconds seconds = SecondsOf(operation, hosts, {}, costs);
    EXPECT_NEAR(seconds.flat, flat, 0.02 * flat);
    EXPECT_NEAR(seconds.chain, chain, 1e-9 * chain);
    if (std::abs(flat - chain) < 0.02 * flat) return;
    EXPECT_EQ(seconds.chain < seconds.flat, chain < flat);
    (chain < flat ? chains : flats) += 1;
  };
  const Hosts growing = {.count = 2, .ranks_each = 2, .firsts = {0, 2, 8}};
  const Hosts shrinking = {.count = 3, .ranks_each = 1, .firsts = {0, 3, 5, 6}};
  for (const Hosts& hosts :
       {kTwoByTwo, Hosts{2, 4}, Hosts{3, 2}, Hosts{4, 8}, growing, shrinking}) {
    for (const LinkCosts& costs : CostsOfManyNetworks()) {
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
        for (size_t bytes = 1024; bytes <= size_t{16} << 20; bytes *= 4) {
          const size_t count = bytes / SizeOf(dtype);
          check({.kind = OpKind::kAllReduce, .dtype = dtype, .count = count}, hosts, costs);
          check({.kind = OpKind::kReduceScatter, .dtype = dtype, .count = count}, hosts, costs);
          for (const int root : {0, hosts.ranks() - 1}) {
            Operation reduce = {.kind = OpKind::kReduce, .dtype = dtype, .count = count};
            reduce.root_or_tag = root;
            check(reduce, hosts, costs);
          }
        }
      }
    }
  }
  EXPECT_GT(chains, 500);
  EXPECT_GT(flats, 500);
}

constexpr OpKind kReductions[] = {OpKind::kAllReduce, OpKind::kReduceScatter, OpKind::kReduce};

// The values of rank 3 after each of kReductions, in sequence (it is the root of the last one), and
// the number of reductions that went from host to host.
struct Reduced {
  std::vector<std::vector<float>> values;
  std::vector<uint64_t> chained;
};
Reduced ReduceWith(const std::vector<int>& sizes, const LinkCosts& costs) {
  constexpr size_t kCount = 30'000;
  constexpr int kRoot = 3;
  HierarchyOptions options = FinelyCut();
  options.costs = costs;
  Communicators group = ConnectHosts(HostNames(sizes), absl::Seconds(60), options);
  Reduced reduced;
  ForEachRank(group, [&](Communicator& c) {
    std::vector<float> values(kCount), sums(kCount), slice(kCount / 4), total(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      values[i] = 1.0f / static_cast<float>(1 + i % 97 + 31 * static_cast<size_t>(c.Rank()));
    }
    EXPECT_EQ(c.AllReduce(values, sums), absl::OkStatus());
    EXPECT_EQ(c.ReduceScatter(values, slice), absl::OkStatus());
    EXPECT_EQ(c.Reduce(values, total, kRoot), absl::OkStatus());
    const CommunicatorStats stats = c.Stats();
    EXPECT_EQ(stats.link_costs, costs);
    if (c.Rank() != kRoot) return;
    reduced.values = {sums, slice, total};
    for (const OpKind kind : kReductions) {
      reduced.chained.push_back(stats.chained[static_cast<size_t>(kind)]);
    }
  });
  return reduced;
}

// The same group once with expensive exchanges of a chain, and once with expensive exchanges of
// all.
TEST(WayChoice, OfAGroupWithSuchCosts_IsWhatItDoesAndChangesNoBit) {
  for (const std::vector<int>& sizes : {std::vector{2, 2}, {1, 3}, {3, 1}, {2, 1, 1}}) {
    const Reduced flat = ReduceWith(sizes, {.exchange_seconds = 1});
    const Reduced chain = ReduceWith(sizes, {.flat_exchange_seconds = 1, .seconds_per_byte = 1e-6});
    EXPECT_EQ(flat.chained, (std::vector<uint64_t>{0, 0, 0}));
    EXPECT_EQ(chain.chained, (std::vector<uint64_t>{1, 1, 1}));
    EXPECT_EQ(flat.values, chain.values);
  }
}

void ExpectMeasuredCosts(const std::vector<int>& sizes) {
  HierarchyOptions options = FinelyCut();
  options.costs.reset();
  Communicators group = ConnectHosts(HostNames(sizes), absl::Seconds(60), options);
  std::vector<std::optional<LinkCosts>> costs(group.size()), of_parts(group.size());
  ForEachRank(group, [&](Communicator& c) {
    costs[static_cast<size_t>(c.Rank())] = c.Stats().link_costs;
    const auto part = c.Duplicate("part");
    ASSERT_TRUE(part.ok()) << part.status();
    of_parts[static_cast<size_t>(c.Rank())] = (*part)->Stats().link_costs;
  });
  ASSERT_TRUE(costs[0].has_value());
  EXPECT_GT(costs[0]->meeting_seconds, 0);
  EXPECT_GT(costs[0]->exchange_seconds, 0);
  EXPECT_GT(costs[0]->flat_exchange_seconds, 0);
  EXPECT_GE(costs[0]->seconds_per_byte, 0);
  for (size_t r = 0; r < group.size(); ++r) {
    EXPECT_EQ(costs[r], costs[0]);
    EXPECT_EQ(of_parts[r], costs[0]) << "parts are not measured again";
  }
}

TEST(WayChoice, OfAGroupThatNobodyGivesCosts_IsByMeasuredOnesThatAllHave) {
  ExpectMeasuredCosts({2, 2});
  ExpectMeasuredCosts({1, 3});
}

}  // namespace
}  // namespace geminid::collectives
