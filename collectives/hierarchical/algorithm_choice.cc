#include "collectives/hierarchical/algorithm_choice.h"

#include <algorithm>

#include "collectives/partition.h"

namespace geminid::collectives {
namespace {

// The elements of one block's lane, if a lane has `lane_count` elements over all blocks.
size_t LongestLane(const LaneBytes& bytes, size_t lane_count, size_t width) {
  constexpr size_t kBlocks = 16;  // more blocks only add the start of a step on each host
  return std::max<size_t>(
      1, std::clamp(lane_count * width / kBlocks, bytes.shortest, bytes.longest) / width);
}

// Steps are sequential. A step is an exchange with other hosts; meanwhile a host's ranks meet
// twice, to gather the lanes of the next block and to distribute a sum.
double ChainSeconds(const Operation& operation, const Hosts& hosts, const LaneBytes& lanes,
                    const LinkCosts& costs) {
  const ChainPlan plan = PlanOf(operation, hosts, lanes);
  const size_t width = SizeOf(operation.dtype);
  const bool is_wide = IsFloating(operation.dtype) && width < sizeof(float);
  const auto bytes_of = [&](size_t block, size_t element) {
    if (block == ChainPlan::kNone) return 0.0;
    size_t count = 0;
    for (int local = 0; local < hosts.ranks_each; ++local) count += plan.LaneOf(block, local).count;
    return static_cast<double>(count * element);
  };
  const size_t partial = is_wide ? sizeof(float) : width;
  double busiest_bytes = 0;  // summed over steps: the busiest link's bytes
  for (size_t step = 0; step < plan.steps(); ++step) {
    double busiest = 0;
    for (int host = 0; host < hosts.count; ++host) {
      const ChainPlan::Step moves = plan.StepOf(host, step);
      busiest = std::max({busiest,
                          bytes_of(moves.send_partial, partial) + bytes_of(moves.send_sum, width),
                          bytes_of(moves.take_partial, partial) + bytes_of(moves.take_sum, width)});
    }
    busiest_bytes += busiest;
  }
  return static_cast<double>(plan.steps()) * (costs.exchange_seconds + 2 * costs.meeting_seconds) +
         busiest_bytes * costs.seconds_per_byte;
}

double FlatSeconds(const Operation& operation, const Hosts& hosts, const LinkCosts& costs) {
  const double bytes = static_cast<double>(operation.count * SizeOf(operation.dtype));
  const double ranks = hosts.ranks();
  // In buffers, on the busiest link: from each rank to each rank, and once to each host.
  double scattered = 0, once = 0;
  for (int host = 0; host < hosts.count; ++host) {
    const double here = hosts.SizeOf(host);
    scattered = std::max(scattered, here * (ranks - here) / ranks);
    once = std::max({once, (ranks - here) / ranks, here * (hosts.count - 1.0) / ranks});
  }
  const double scatter_seconds =
      costs.flat_exchange_seconds + scattered * bytes * costs.seconds_per_byte;
  switch (operation.kind) {
    case OpKind::kReduceScatter:
      return scatter_seconds;
    case OpKind::kReduce:  // all buffers go to the root
      return costs.flat_exchange_seconds +
             (ranks - hosts.SizeOf(hosts.HostOf(operation.root_or_tag))) * bytes *
                 costs.seconds_per_byte;
    default:  // scattered; then the sums go to each host once
      return scatter_seconds + costs.exchange_seconds + 2 * costs.meeting_seconds +
             once * bytes * costs.seconds_per_byte;
  }
}

}  // namespace

ChainPlan PlanOf(const Operation& operation, const Hosts& hosts, const LaneBytes& lanes) {
  const size_t width = SizeOf(operation.dtype);
  if (operation.kind == OpKind::kReduceScatter) {
    const Partition slices(operation.count, hosts.ranks());
    const size_t lane = hosts.are_even() ? slices.MaxCount() * static_cast<size_t>(hosts.count)
                                         : operation.count / static_cast<size_t>(hosts.ranks_each);
    return ChainPlan::Slices(hosts, slices, LongestLane(lanes, lane, width));
  }
  const size_t lane = operation.count / static_cast<size_t>(hosts.ranks_each);
  const int wanted_on = operation.kind == OpKind::kReduce ? hosts.HostOf(operation.root_or_tag)
                                                          : ChainPlan::kEveryHost;
  return ChainPlan::Whole(hosts, operation.count, wanted_on, LongestLane(lanes, lane, width));
}

AlgorithmSeconds SecondsOf(const Operation& operation, const Hosts& hosts, const LaneBytes& lanes,
                           const LinkCosts& costs) {
  return {.flat = FlatSeconds(operation, hosts, costs),
          .chain = ChainSeconds(operation, hosts, lanes, costs)};
}

}  // namespace geminid::collectives
