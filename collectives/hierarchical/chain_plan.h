// How a sum over several hosts is cut up, so that it can go from host to host in rank order.
//
// A block is a part of what is reduced, and a lane of it belongs to the ranks of one number within
// their hosts: there are as many lanes as ranks on the smallest host. Within a host each rank
// gathers its lane of a block from the others. The lane's rank on the first host adds them up and
// sends the partial sum to its twin on the second host, which adds its host's, and so on: the order
// is that of the ranks. The last host rounds. While one host adds a block, the next one adds the
// block before.
#ifndef GEMINID_COLLECTIVES_HIERARCHICAL_CHAIN_PLAN_H_
#define GEMINID_COLLECTIVES_HIERARCHICAL_CHAIN_PLAN_H_

#include <cstddef>
#include <vector>

#include "collectives/hierarchical/hosts.h"
#include "collectives/operation.h"
#include "collectives/partition.h"

namespace geminid::collectives {

// Pure arithmetic, the same on every rank.
class ChainPlan {
 public:
  static constexpr int kEveryHost = -1;

  // The sum of `total` elements, wanted on every host or on one.
  static ChainPlan Whole(const Hosts& hosts, size_t total, int wanted_on, size_t longest_lane);
  // Of each slice, by rank, the sum on that rank. Slices differ by one element at most. With hosts
  // of different sizes, the sum of a host's slices on that host, in blocks as of Whole().
  static ChainPlan Slices(const Hosts& hosts, const Partition& slices, size_t longest_lane);

  const Hosts& hosts() const { return hosts_; }
  size_t blocks() const { return blocks_.size(); }
  // Where the sum of a block goes, or kEveryHost: back through the chain.
  int WantedOn(size_t block) const { return blocks_[block].wanted_on; }

  struct Lane {
    size_t begin = 0;  // in what is reduced
    size_t count = 0;
  };
  // Ranks beyond those of the smallest host have none.
  Lane LaneOf(size_t block, int local) const;
  // The longest of the block's.
  size_t LaneCount(size_t block) const;
  // Whether the block's lanes follow each other: of Whole(), or with hosts of different sizes.
  bool is_whole() const { return whole_; }
  Partition PartsOf(size_t block) const;  // then

  // Blocks that move between the hosts in one step, from this host or to it, or kNone. A sum is
  // passed on a step after it is known: sums known in a step lie there until the next one is over.
  static constexpr size_t kNone = static_cast<size_t>(-1);
  struct Step {
    size_t add = kNone;           // this host adds its part
    size_t send_partial = kNone;  // to the next host
    size_t take_partial = kNone;  // from the host before, for the next step
    size_t send_sum = kNone;
    int send_sum_to = 0;
    size_t take_sum = kNone;
    int take_sum_from = 0;
    size_t known = kNone;  // the sum that this host wants, added up or taken in this step
  };
  size_t steps() const;
  Step StepOf(int host, size_t step) const;

 private:
  struct Block {
    size_t begin = 0;   // of the first lane
    size_t count = 0;   // of Whole(), all lanes
    size_t offset = 0;  // of Slices(), within each slice
    int wanted_on = kEveryHost;
  };
  ChainPlan(const Hosts& hosts, size_t longest_lane, const Partition& slices, bool whole);
  // Nothing is a block, too: its messages say what the ranks are doing.
  void AddBlocks(size_t begin, size_t end, int wanted_on);
  // `block`, if it is one.
  size_t Existing(std::ptrdiff_t block) const;

  Hosts hosts_;
  size_t longest_lane_;
  Partition slices_;
  bool whole_;
  std::vector<Block> blocks_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_HIERARCHICAL_CHAIN_PLAN_H_
