// How a sum over several hosts is divided, so that it can go from host to host in rank order.
//
// A block is a part of the reduced elements, divided into as many lanes as the smallest host has
// ranks. Each lane belongs to the ranks of one number within their hosts. Each such rank gathers
// its lane of a block from its host's ranks. On the first host it adds them up and sends the
// partial sum to its counterpart on the second host. That one adds its own host's values, and so on
// in rank order. The last host rounds. While one host adds a block, the next host adds the block
// before.
#ifndef GEMINID_COLLECTIVES_HIERARCHICAL_CHAIN_PLAN_H_
#define GEMINID_COLLECTIVES_HIERARCHICAL_CHAIN_PLAN_H_

#include <cstddef>
#include <vector>

#include "collectives/hierarchical/hosts.h"
#include "collectives/operation.h"
#include "collectives/partition.h"

namespace geminid::collectives {

// Pure arithmetic with the same results on every rank.
class ChainPlan {
 public:
  static constexpr int kEveryHost = -1;

  // The sum of `total` elements, for every host or for one.
  static ChainPlan Whole(const Hosts& hosts, size_t total, int wanted_on, size_t longest_lane);
  // For each rank the sum of its slice. Slices differ by at most one element. With hosts of
  // different sizes: for each host the sum of its ranks' slices, in blocks as of Whole().
  static ChainPlan Slices(const Hosts& hosts, const Partition& slices, size_t longest_lane);

  const Hosts& hosts() const { return hosts_; }
  size_t blocks() const { return blocks_.size(); }
  // The host that gets a block's sum; kEveryHost: the sum goes back through the chain.
  int WantedOn(size_t block) const { return blocks_[block].wanted_on; }

  struct Lane {
    size_t begin = 0;  // within the reduced elements
    size_t count = 0;
  };
  // A rank beyond those of the smallest host has no lane.
  Lane LaneOf(size_t block, int local) const;
  // The length of the block's longest lane.
  size_t LaneCount(size_t block) const;
  // Whether lanes of a block are adjacent: for Whole(), and with hosts of different sizes.
  bool is_whole() const { return whole_; }
  Partition PartsOf(size_t block) const;  // only if is_whole()

  // The blocks that one step moves between this host and others, or kNone. A sum is passed on one
  // step after it is complete: it stays in memory until the following step is over.
  static constexpr size_t kNone = static_cast<size_t>(-1);
  struct Step {
    size_t add = kNone;           // this host adds its ranks' values
    size_t send_partial = kNone;  // to the next host
    size_t take_partial = kNone;  // from the previous host, for the next step
    size_t send_sum = kNone;
    int send_sum_to = 0;
    size_t take_sum = kNone;
    int take_sum_from = 0;
    size_t known = kNone;  // the sum that this host wants, completed or received in this step
  };
  size_t steps() const;
  Step StepOf(int host, size_t step) const;

 private:
  struct Block {
    size_t begin = 0;   // of the first lane
    size_t count = 0;   // for Whole(): of all lanes
    size_t offset = 0;  // for Slices(): within each slice
    int wanted_on = kEveryHost;
  };
  ChainPlan(const Hosts& hosts, size_t longest_lane, const Partition& slices, bool whole);
  // Zero elements make one block too: its messages let ranks compare their operations.
  void AddBlocks(size_t begin, size_t end, int wanted_on);
  // `block` if there is such a block, else kNone.
  size_t Existing(std::ptrdiff_t block) const;

  Hosts hosts_;
  size_t longest_lane_;
  Partition slices_;
  bool whole_;
  std::vector<Block> blocks_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_HIERARCHICAL_CHAIN_PLAN_H_
