#include "collectives/hierarchical/chain_plan.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>

namespace geminid::collectives {
namespace {

constexpr size_t kNone = ChainPlan::kNone;

constexpr size_t kLongestLane = 16;

std::vector<ChainPlan> Plans() {
  std::vector<ChainPlan> plans;
  for (const size_t total : {0, 1, 100, 1001}) {
    const Hosts hosts = {.count = 3, .ranks_each = 2, .firsts = {0, 4, 6, 9}};
    plans.push_back(ChainPlan::Slices(hosts, Partition(total, 9), kLongestLane));
  }
  for (const int count : {2, 3, 5}) {
    for (const int each : {2, 3}) {
      const Hosts hosts = {.count = count, .ranks_each = each};
      for (const size_t total : {0, 1, 7, 100, 1001}) {
        plans.push_back(ChainPlan::Whole(hosts, total, ChainPlan::kEveryHost, 16));
        for (int host = 0; host < count; ++host) {
          plans.push_back(ChainPlan::Whole(hosts, total, host, kLongestLane));
        }
        plans.push_back(ChainPlan::Slices(hosts, Partition(total, count * each), kLongestLane));
      }
    }
  }
  return plans;
}

// A host of three ranks gets the sums of its three slices, in blocks of the two lanes of all hosts.
TEST(ChainPlan, SlicesOfUnevenHosts_AreOfTheirHosts) {
  const Hosts hosts = {.count = 2, .ranks_each = 2, .firsts = {0, 3, 5}};
  const Partition slices(101, 5);  // 21, 20, 20, 20, 20
  const ChainPlan plan = ChainPlan::Slices(hosts, slices, 5);
  EXPECT_TRUE(plan.is_whole());
  for (size_t block = 0; block < plan.blocks(); ++block) {
    const int host = plan.WantedOn(block);
    const ChainPlan::Lane first = plan.LaneOf(block, 0), second = plan.LaneOf(block, 1);
    EXPECT_GE(first.begin, host == 0 ? 0u : 61u);
    EXPECT_LE(second.begin + second.count, host == 0 ? 61u : 101u);
    EXPECT_EQ(plan.LaneOf(block, 2).count, 0u);
  }
}

TEST(ChainPlan, Lanes_CoverEveryElementOnce) {
  for (const ChainPlan& plan : Plans()) {
    std::map<size_t, int> covered;
    size_t last = 0;
    for (size_t block = 0; block < plan.blocks(); ++block) {
      for (int local = 0; local < plan.hosts().ranks_each; ++local) {
        const ChainPlan::Lane lane = plan.LaneOf(block, local);
        EXPECT_LE(lane.count, plan.LaneCount(block));
        EXPECT_LE(lane.count, kLongestLane);
        for (size_t i = 0; i < lane.count; ++i) ++covered[lane.begin + i];
        last = std::max(last, lane.begin + lane.count);
      }
    }
    EXPECT_EQ(covered.size(), last);
    for (const auto& [element, times] : covered) EXPECT_EQ(times, 1) << element;
  }
}

TEST(ChainPlan, LanesOfSlices_AreOfTheirOwnRanks) {
  const Hosts hosts = {.count = 3, .ranks_each = 2};
  const Partition slices(101, 6);
  const ChainPlan plan = ChainPlan::Slices(hosts, slices, 5);
  for (size_t block = 0; block < plan.blocks(); ++block) {
    for (int local = 0; local < 2; ++local) {
      const ChainPlan::Lane lane = plan.LaneOf(block, local);
      const int rank = hosts.RankAt(plan.WantedOn(block), local);
      EXPECT_GE(lane.begin, slices.Begin(rank));
      EXPECT_LE(lane.begin + lane.count, slices.Begin(rank) + slices.Count(rank));
    }
  }
}

// Plays all hosts at once. Each block that a host sends is received by another host in the same
// step, in the order of the blocks. A host has each block that it sends or adds. Each sum is known
// where it is wanted, and only after all hosts have added to it.
TEST(ChainPlan, Steps_PassEveryBlockThroughAllHostsInOrder) {
  for (const ChainPlan& plan : Plans()) {
    const int hosts = plan.hosts().count;
    std::vector<int> added(plan.blocks(), 0);  // by how many hosts
    std::map<std::pair<int, size_t>, size_t> partial_came, known;
    for (size_t step = 0; step < plan.steps(); ++step) {
      for (int host = 0; host < hosts; ++host) {
        const ChainPlan::Step moves = plan.StepOf(host, step);
        if (moves.add != kNone) {
          EXPECT_EQ(added[moves.add], host);
          if (host > 0) {
            EXPECT_EQ(partial_came.at({host, moves.add}) + 1, step);
          }
          ++added[moves.add];
        }
        if (moves.send_partial != kNone) {
          EXPECT_EQ(moves.send_partial, moves.add);
          EXPECT_EQ(plan.StepOf(host + 1, step).take_partial, moves.send_partial);
        }
        if (moves.take_partial != kNone) {
          EXPECT_EQ(plan.StepOf(host - 1, step).send_partial, moves.take_partial);
          partial_came[{host, moves.take_partial}] = step;
        }
        if (moves.take_sum != kNone) {
          EXPECT_EQ(plan.StepOf(moves.take_sum_from, step).send_sum, moves.take_sum);
          EXPECT_EQ(plan.StepOf(moves.take_sum_from, step).send_sum_to, host);
        }
        if (moves.known != kNone) {
          EXPECT_TRUE(known.insert({{host, moves.known}, step}).second);
        }
      }
      for (int host = 0; host < hosts; ++host) {
        const ChainPlan::Step moves = plan.StepOf(host, step);
        if (moves.send_sum == kNone) continue;
        EXPECT_EQ(added[moves.send_sum], hosts);
        EXPECT_EQ(plan.StepOf(moves.send_sum_to, step).take_sum, moves.send_sum);
        // The sum was known in the step before, or was just completed.
        const bool just = host == hosts - 1 && moves.add == moves.send_sum;
        if (!just) {
          EXPECT_EQ(known.at({host, moves.send_sum}) + 1, step);
        }
      }
    }
    for (size_t block = 0; block < plan.blocks(); ++block) {
      EXPECT_EQ(added[block], hosts);
      for (int host = 0; host < hosts; ++host) {
        const int wanted = plan.WantedOn(block);
        EXPECT_EQ(known.count({host, block}), wanted == host || wanted < 0 ? 1u : 0u);
      }
    }
  }
}

// The last step is needed, and every step moves something.
TEST(ChainPlan, Steps_AreAllUsed) {
  for (const ChainPlan& plan : Plans()) {
    for (size_t step = 0; step < plan.steps(); ++step) {
      bool used = false;
      for (int host = 0; host < plan.hosts().count; ++host) {
        const ChainPlan::Step moves = plan.StepOf(host, step);
        used = used || moves.add != kNone || moves.take_sum != kNone || moves.take_partial != kNone;
      }
      EXPECT_TRUE(used) << step << " of " << plan.steps();
    }
  }
}

TEST(Hosts, RanksSideBySide_AreFound) {
  const auto of = [](std::vector<std::string> names) { return Hosts::Of(names); };
  const auto two = of({"a", "a", "b", "b"});
  ASSERT_TRUE(two.has_value());
  EXPECT_EQ(two->count, 2);
  EXPECT_EQ(two->ranks_each, 2);
  EXPECT_EQ(of({"a", "a", "a"})->count, 1);
  EXPECT_EQ(of({"a", "b", "c"})->ranks_each, 1);
  EXPECT_TRUE(two->are_even());
  const auto uneven = of({"a", "a", "a", "b", "c", "c"});
  ASSERT_TRUE(uneven.has_value());
  EXPECT_FALSE(uneven->are_even());
  EXPECT_EQ(uneven->count, 3);
  EXPECT_EQ(uneven->ranks_each, 1);
  EXPECT_EQ(uneven->most_ranks(), 3);
  EXPECT_EQ(uneven->ranks(), 6);
  for (const auto& [rank, host, local] :
       {std::array{0, 0, 0}, std::array{2, 0, 2}, std::array{3, 1, 0}, std::array{5, 2, 1}}) {
    EXPECT_EQ(uneven->HostOf(rank), host);
    EXPECT_EQ(uneven->LocalOf(rank), local);
    EXPECT_EQ(uneven->RankAt(host, local), rank);
  }
  EXPECT_FALSE(of({"a", "b", "a", "b"}).has_value());  // in turns
  EXPECT_FALSE(of({"a", "b", "b", "a"}).has_value());  // apart
  EXPECT_FALSE(of({}).has_value());
}

}  // namespace
}  // namespace geminid::collectives
