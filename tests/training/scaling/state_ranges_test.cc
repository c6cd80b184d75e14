// Sets of ranges, and plans of what goes from rank to rank, against element by element.
#include "training/scaling/state_ranges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace geminid::trainer {
namespace {

constexpr uint64_t kParameters = 3;
constexpr uint64_t kElements = 40;  // of each

using Element = std::pair<uint64_t, uint64_t>;
using Elements = std::multiset<Element>;

void AddTo(Elements* elements, const StateRange& range) {
  for (uint64_t i = 0; i < range.elements; ++i) {
    elements->insert({range.parameter, range.first + i});
  }
}

Elements Of(const std::vector<StateRange>& ranges) {
  Elements elements;
  for (const StateRange& range : ranges) AddTo(&elements, range);
  return elements;
}

std::set<Element> Once(const Elements& elements) { return {elements.begin(), elements.end()}; }

std::vector<StateRange> SomeRanges(std::mt19937* random, size_t count) {
  std::vector<StateRange> ranges;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t first = (*random)() % kElements;
    ranges.push_back({(*random)() % kParameters, first, (*random)() % (kElements - first) / 2});
  }
  return ranges;
}

TEST(RangeSet, OfRandomRanges_HasTheElementsThatTheyHave) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const std::vector<StateRange> added = SomeRanges(&random, random() % 8);
    const RangeSet set(added);
    const std::set<Element> expected = Once(Of(added));
    const Elements has = Of(set.ranges());
    EXPECT_EQ(Once(has), expected);
    EXPECT_EQ(has.size(), expected.size()) << "ranges overlap";
    for (const StateRange& asked : SomeRanges(&random, 5)) {
      const Elements all = Of({asked}), common = Of(set.Common({asked})),
                     without = Of(set.Without({asked}));
      for (const Element& element : all) {
        EXPECT_EQ(common.count(element), expected.count(element));
        EXPECT_EQ(without.count(element), 1 - expected.count(element));
      }
      EXPECT_EQ(common.size() + without.size(), all.size());
    }
  }
}

TEST(RangeSet, OfNeighbours_IsOneRange) {
  const RangeSet set({{0, 10, 5}, {0, 0, 5}, {1, 5, 5}, {0, 5, 5}});
  EXPECT_EQ(set.ranges(), (std::vector<StateRange>{{0, 0, 15}, {1, 5, 5}}));
}

// Every parameter divided among the ranks; some elements are on two ranks, as of norms that ranks
// of tensor share.
RangesByRank SomeShards(std::mt19937* random, size_t ranks) {
  RangesByRank shards(ranks);
  for (uint64_t parameter = 0; parameter < kParameters; ++parameter) {
    for (uint64_t at = 0; at < kElements;) {
      const uint64_t elements = std::min<uint64_t>(1 + (*random)() % 9, kElements - at);
      shards[(*random)() % ranks].push_back({parameter, at, elements});
      if ((*random)() % 4 == 0) shards[(*random)() % ranks].push_back({parameter, at, elements});
      at += elements;
    }
  }
  return shards;
}

std::vector<size_t> SomeHosts(std::mt19937* random, size_t ranks) {
  std::vector<size_t> hosts = {0};
  while (hosts.size() < ranks) hosts.push_back(hosts.back() + (*random)() % 2);
  return hosts;
}

Elements Shipped(const std::vector<StateTransfer>& transfers, int from, int to) {
  Elements elements;
  for (const StateTransfer& transfer : transfers) {
    if ((from < 0 || transfer.from == from) && (to < 0 || transfer.to == to)) {
      AddTo(&elements, transfer.range);
    }
  }
  return elements;
}

TEST(PlanToLeave, OfRandomShards_LeavesEachElementAndSendsOnceWhatOnlyLeavingHostsHave) {
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    const size_t ranks = 1 + random() % 7;
    const RangesByRank shards = SomeShards(&random, ranks);
    const std::vector<size_t> hosts = SomeHosts(&random, ranks);
    const size_t after = 1 + random() % (hosts.back() + 1);
    const LeavingPlan plan = PlanToLeave(shards, hosts, after);
    ASSERT_EQ(plan.by_host.size(), after);
    Elements left, stays;
    for (const auto& ranges : plan.by_host) left.merge(Of(ranges));
    EXPECT_EQ(Once(left).size(), kParameters * kElements);
    for (size_t rank = 0; rank < ranks; ++rank) {
      if (hosts[rank] < after) stays.merge(Of(shards[rank]));
    }
    const Elements sent = Shipped(plan.transfers, -1, -1);
    EXPECT_EQ(sent.size(), kParameters * kElements - Once(stays).size()) << "more than is missing";
    for (const Element& element : sent) EXPECT_FALSE(stays.contains(element));
    for (const StateTransfer& transfer : plan.transfers) {
      EXPECT_GE(hosts[static_cast<size_t>(transfer.from)], after);
      EXPECT_LT(hosts[static_cast<size_t>(transfer.to)], after);
      const Elements has = Of(shards[static_cast<size_t>(transfer.from)]);
      for (const Element& element : Of({transfer.range})) EXPECT_TRUE(has.contains(element));
    }
  }
}

TEST(PlanToTake, OfRandomShards_SendsEachRankOnceWhatItsHostLacks) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const size_t before = 1 + random() % 6, after = 1 + random() % 6;
    const std::vector<size_t> hosts_before = SomeHosts(&random, before);
    const std::vector<size_t> hosts = SomeHosts(&random, after);
    const LeavingPlan left = PlanToLeave(SomeShards(&random, before), hosts_before,
                                         std::min(hosts_before.back(), hosts.back()) + 1);
    RangesByRank by_host = left.by_host;
    by_host.resize(hosts.back() + 1);
    const RangesByRank shards = SomeShards(&random, after);
    const auto transfers = PlanToTake(shards, hosts, by_host);
    ASSERT_TRUE(transfers.ok()) << transfers.status();
    for (size_t rank = 0; rank < after; ++rank) {
      const Elements got = Shipped(*transfers, -1, static_cast<int>(rank));
      const Elements here = Of(by_host[hosts[rank]]);
      Elements lacks;
      for (const Element& element : Of(shards[rank])) {
        if (!here.contains(element)) lacks.insert(element);
      }
      EXPECT_EQ(got, lacks);
    }
    for (const StateTransfer& transfer : *transfers) {
      const Elements has = Of(by_host[hosts[static_cast<size_t>(transfer.from)]]);
      for (const Element& element : Of({transfer.range})) EXPECT_TRUE(has.contains(element));
    }
  }
}

TEST(PlanToTake, OfWhatNoHostHas_IsAnError) {
  const RangesByRank shards = {{{0, 0, 10}}, {{0, 10, 10}}};
  const auto plan = PlanToTake(shards, {0, 1}, {{{0, 0, 12}}, {{0, 13, 7}}});
  EXPECT_EQ(plan.status().message(),
            "no host has elements 12 to 13 of parameter 0, which rank 1 is to have");
}

}  // namespace
}  // namespace geminid::trainer
