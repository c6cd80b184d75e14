// A reduction over several hosts in rank order.
#ifndef GEMINID_COLLECTIVES_HIERARCHICAL_CHAIN_REDUCTION_H_
#define GEMINID_COLLECTIVES_HIERARCHICAL_CHAIN_REDUCTION_H_

#include <cstddef>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "collectives/hierarchical/chain_plan.h"
#include "collectives/hierarchical/hierarchy_levels.h"
#include "collectives/operation.h"

namespace geminid::collectives {

// Executes plans on one rank. Has buffers of 2 L + 4 lanes, with L ranks on its host; for 16-bit
// elements L + 3 more, in fp32.
class ChainReduction {
 public:
  explicit ChainReduction(HierarchyLevels* levels) : levels_(*levels) {}

  // Takes this rank's lane of a block's sum, on the hosts that want it. Called in the order of the
  // blocks, alike on all ranks of the host. It may use the host's group.
  using Deliver = absl::FunctionRef<absl::Status(size_t block, const std::byte* lane)>;
  // `in` may be overwritten block by block as sums are delivered.
  absl::Status Run(const Operation& operation, const ChainPlan& plan, const std::byte* in,
                   Deliver deliver);

 private:
  // One reduction.
  struct Job {
    const Operation& operation;
    const ChainPlan& plan;
    const std::byte* in = nullptr;
    size_t width = 0;          // bytes of an element
    size_t partial_width = 0;  // bytes of an element of a partial sum
    bool wide = false;         // partial sums are fp32, but the elements are not
    bool first = false;        // this is the first host
    bool last = false;         // this is the last host
  };

  void MakeRoom(const Job& job);
  // Gathers the lane from the ranks of this host into gathered_.
  absl::Status GatherLane(const Job& job, size_t block);
  const std::byte* Stage(const Job& job, size_t block);
  // Adds gathered_ to the previous host's partial sum; the result is a partial sum, or `sum`.
  void Add(const Job& job, size_t block, std::byte* sum);
  ExchangeMessages MessagesOf(const Job& job, const ChainPlan::Step& moves, size_t step);
  std::byte* SumOf(size_t step) { return sums_[step % 2].data(); }

  HierarchyLevels& levels_;
  std::vector<std::byte> staged_;       // by rank of the host: sent to it
  std::vector<std::byte> gathered_;     // by rank of the host: received from it
  std::vector<float> wide_;             // gathered_ in fp32, and room for the sum
  std::vector<std::byte> from_before_;  // a partial sum
  std::vector<std::byte> to_next_;      // a partial sum
  std::vector<std::byte> sums_[2];      // completed in this step and in the step before
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_HIERARCHICAL_CHAIN_REDUCTION_H_
