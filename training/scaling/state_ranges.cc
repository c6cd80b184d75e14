#include "training/scaling/state_ranges.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace geminid::trainer {
namespace {

// The ranks of each host, in order.
std::vector<std::vector<int>> RanksByHost(const std::vector<size_t>& host_by_rank) {
  std::vector<std::vector<int>> ranks;
  for (size_t rank = 0; rank < host_by_rank.size(); ++rank) {
    ranks.resize(std::max(ranks.size(), host_by_rank[rank] + 1));
    ranks[host_by_rank[rank]].push_back(static_cast<int>(rank));
  }
  return ranks;
}

}  // namespace

RangeSet::RangeSet(const std::vector<StateRange>& ranges) {
  for (const StateRange& range : ranges) Add(range);
}

void RangeSet::Add(const StateRange& range) {
  if (range.elements == 0) return;
  uint64_t first = range.first, end = range.first + range.elements;
  auto next = ends_.upper_bound({range.parameter, first});
  if (next != ends_.begin()) {
    const auto before = std::prev(next);
    if (before->first.first == range.parameter && before->second >= first) next = before;
  }
  while (next != ends_.end() && next->first.first == range.parameter && next->first.second <= end) {
    first = std::min(first, next->first.second);
    end = std::max(end, next->second);
    next = ends_.erase(next);
  }
  ends_[{range.parameter, first}] = end;
}

std::vector<StateRange> RangeSet::ranges() const {
  std::vector<StateRange> ranges;
  for (const auto& [begin, end] : ends_) {
    ranges.push_back({begin.first, begin.second, end - begin.second});
  }
  return ranges;
}

std::vector<StateRange> RangeSet::Common(const std::vector<StateRange>& ranges) const {
  std::vector<StateRange> common;
  for (const StateRange& range : ranges) {
    const uint64_t end = range.first + range.elements;
    auto next = ends_.upper_bound({range.parameter, range.first});
    if (next != ends_.begin()) --next;
    for (; next != ends_.end() && next->first <= std::pair(range.parameter, end); ++next) {
      if (next->first.first != range.parameter) continue;
      const uint64_t from = std::max(range.first, next->first.second);
      const uint64_t to = std::min(end, next->second);
      if (from < to) common.push_back({range.parameter, from, to - from});
    }
  }
  return common;
}

std::vector<StateRange> RangeSet::Without(const std::vector<StateRange>& ranges) const {
  std::vector<StateRange> rest;
  for (const StateRange& range : ranges) {
    uint64_t at = range.first;
    const auto add = [&](uint64_t end) {
      if (at < end) rest.push_back({range.parameter, at, end - at});
    };
    for (const StateRange& common : Common({range})) {
      add(common.first);
      at = common.first + common.elements;
    }
    add(range.first + range.elements);
  }
  return rest;
}

LeavingPlan PlanToLeave(const RangesByRank& shards, const std::vector<size_t>& host_by_rank,
                        size_t hosts_after) {
  std::vector<RangeSet> sets(hosts_after);
  RangeSet all;
  std::vector<int> stay;
  for (size_t rank = 0; rank < shards.size(); ++rank) {
    if (host_by_rank[rank] >= hosts_after) continue;
    stay.push_back(static_cast<int>(rank));
    for (const StateRange& range : shards[rank]) {
      sets[host_by_rank[rank]].Add(range);
      all.Add(range);
    }
  }
  LeavingPlan plan;
  size_t turn = 0;
  for (size_t rank = 0; rank < shards.size(); ++rank) {
    if (host_by_rank[rank] < hosts_after) continue;
    const int to = stay[turn++ % stay.size()];
    for (const StateRange& range : all.Without(RangeSet(shards[rank]).ranges())) {
      plan.transfers.push_back({static_cast<int>(rank), to, range});
      sets[host_by_rank[static_cast<size_t>(to)]].Add(range);
      all.Add(range);
    }
  }
  for (const RangeSet& set : sets) plan.by_host.push_back(set.ranges());
  return plan;
}

absl::StatusOr<std::vector<StateTransfer>> PlanToTake(const RangesByRank& shards,
                                                      const std::vector<size_t>& host_by_rank,
                                                      const RangesByRank& by_host) {
  const std::vector<std::vector<int>> ranks = RanksByHost(host_by_rank);
  std::vector<RangeSet> sets;
  for (const std::vector<StateRange>& ranges : by_host) sets.emplace_back(ranges);
  std::vector<StateTransfer> transfers;
  for (size_t rank = 0; rank < shards.size(); ++rank) {
    std::vector<StateRange> rest = sets[host_by_rank[rank]].Without(shards[rank]);
    for (size_t host = 0; host < sets.size() && !rest.empty(); ++host) {
      const int from = ranks[host][rank % ranks[host].size()];
      for (const StateRange& range : sets[host].Common(rest)) {
        transfers.push_back({from, static_cast<int>(rank), range});
      }
      rest = sets[host].Without(rest);
    }
    if (rest.empty()) continue;
    return absl::InternalError(absl::StrCat(
        "no host has elements ", rest[0].first, " to ", rest[0].first + rest[0].elements,
        " of parameter ", rest[0].parameter, ", which rank ", rank, " is to have"));
  }
  return transfers;
}

}  // namespace geminid::trainer
