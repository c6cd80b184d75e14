#include "collectives/hierarchical/chain_plan.h"

#include <algorithm>

#include "geminid/buffer.h"

namespace geminid::collectives {

ChainPlan::ChainPlan(const Hosts& hosts, size_t longest_lane, const Partition& slices, bool whole)
    : hosts_(hosts), longest_lane_(longest_lane), slices_(slices), whole_(whole) {}

ChainPlan ChainPlan::Whole(const Hosts& hosts, size_t total, int wanted_on, size_t longest_lane) {
  ChainPlan plan(hosts, longest_lane, Partition(total, 1), /*whole=*/true);
  plan.AddBlocks(0, total, wanted_on);
  return plan;
}

void ChainPlan::AddBlocks(size_t begin, size_t end, int wanted_on) {
  const size_t longest = longest_lane_ * static_cast<size_t>(hosts_.ranks_each);
  do {
    const size_t count = std::min(longest, end - begin);
    blocks_.push_back({.begin = begin, .count = count, .wanted_on = wanted_on});
    begin += count;
  } while (begin < end);
}

ChainPlan ChainPlan::Slices(const Hosts& hosts, const Partition& slices, size_t longest_lane) {
  ChainPlan plan(hosts, longest_lane, slices, /*whole=*/!hosts.are_even());
  for (int host = 0; host < hosts.count; ++host) {
    if (plan.whole_) {
      plan.AddBlocks(slices.Begin(hosts.FirstOf(host)), slices.Begin(hosts.FirstOf(host + 1)),
                     host);
      continue;
    }
    size_t offset = 0;
    do {
      plan.blocks_.push_back({.offset = offset, .wanted_on = host});
      offset += longest_lane;
    } while (offset < slices.MaxCount());
  }
  return plan;
}

ChainPlan::Lane ChainPlan::LaneOf(size_t block, int local) const {
  const Block& of = blocks_[block];
  if (whole_) {
    const Partition parts = PartsOf(block);
    return {.begin = of.begin + parts.Begin(local), .count = parts.Count(local)};
  }
  const int rank = hosts_.RankAt(of.wanted_on, local);
  const size_t slice = slices_.Count(rank);
  const size_t offset = std::min(of.offset, slice);
  return {.begin = slices_.Begin(rank) + offset, .count = std::min(longest_lane_, slice - offset)};
}

size_t ChainPlan::LaneCount(size_t block) const { return LaneOf(block, 0).count; }

Partition ChainPlan::PartsOf(size_t block) const {
  return Partition(blocks_[block].count, hosts_.ranks_each);
}

size_t ChainPlan::steps() const {
  const auto hosts = static_cast<size_t>(hosts_.count);
  // The last block is complete on the last host after as many steps as there are hosts before it.
  // It needs as many again to return to the first host.
  const bool back = blocks_.front().wanted_on == kEveryHost;
  return blocks() + (back ? 2 * (hosts - 1) - 1 : hosts - 1);
}

size_t ChainPlan::Existing(std::ptrdiff_t block) const {
  return block >= 0 && static_cast<size_t>(block) < blocks() ? static_cast<size_t>(block) : kNone;
}

ChainPlan::Step ChainPlan::StepOf(int host, size_t step) const {
  const auto now = static_cast<std::ptrdiff_t>(step);
  const int last = hosts_.count - 1;
  Step moves;
  moves.add = Existing(now - host);
  if (host < last) moves.send_partial = moves.add;
  if (host > 0) moves.take_partial = Existing(now + 1 - host);
  const size_t summed = Existing(now - last);  // by the last host
  if (blocks_.front().wanted_on == kEveryHost) {
    // The last host passes a sum on in the step that completes it, other hosts one step later.
    if (host < last) moves.take_sum = Existing(now - (2 * last - 1 - host));
    if (host > 0) moves.send_sum = Existing(now - (2 * last - host));
    moves.take_sum_from = host + 1;
    moves.send_sum_to = host - 1;
    moves.known = host == last ? summed : moves.take_sum;
    return moves;
  }
  if (summed == kNone) return moves;
  const int wanted_on = WantedOn(summed);
  if (wanted_on == host) moves.known = summed;
  if (wanted_on == last) return moves;
  if (wanted_on == host) moves.take_sum = summed;
  if (host == last) moves.send_sum = summed;
  moves.take_sum_from = last;
  moves.send_sum_to = wanted_on;
  return moves;
}

}  // namespace geminid::collectives
