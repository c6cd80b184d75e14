// A reduction over several hosts in rank order.
#ifndef GEMINID_COLLECTIVES_HIERARCHICAL_CHAIN_H_
#define GEMINID_COLLECTIVES_HIERARCHICAL_CHAIN_H_

#include <cstddef>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "collectives/hierarchical/chain_plan.h"
#include "collectives/hierarchical/layers.h"
#include "collectives/operation.h"

namespace geminid::collectives {

// Carries out plans on one rank. Keeps buffers of 2 L + 4 lanes with L ranks on its host; for half
// as wide elements, of L + 3 more in fp32.
class Chain {
 public:
  explicit Chain(Layers* layers) : layers_(*layers) {}

  // Takes this rank's lane of the sum of a block, where it is wanted. Called in the order of the
  // blocks, on all ranks of the host alike. It may use the host's group.
  using Deliver = absl::FunctionRef<absl::Status(size_t block, const std::byte* lane)>;
  // `in` may be overwritten block by block as they are delivered.
  absl::Status Run(const Operation& operation, const ChainPlan& plan, const std::byte* in,
                   Deliver deliver);

 private:
  // One reduction.
  struct Job {
    const Operation& operation;
    const ChainPlan& plan;
    const std::byte* in = nullptr;
    size_t width = 0;          // of an element
    size_t partial_width = 0;  // of an element of a partial sum
    bool wide = false;         // partial sums are fp32 and the elements are not
    bool first = false;        // host
    bool last = false;         // host
  };

  void MakeRoom(const Job& job);
  // From the ranks of this host to gathered_.
  absl::Status GatherLane(const Job& job, size_t block);
  const std::byte* Stage(const Job& job, size_t block);
  // What came from the host before and gathered_, to the next host's partial sum or to `sum`.
  void Add(const Job& job, size_t block, std::byte* sum);
  Parcels ParcelsOf(const Job& job, const ChainPlan::Step& moves, size_t step);
  std::byte* SumOf(size_t step) { return sums_[step % 2].data(); }

  Layers& layers_;
  std::vector<std::byte> staged_;       // by rank of the host, to it
  std::vector<std::byte> gathered_;     // by rank of the host, from it
  std::vector<float> wide_;             // gathered_ in fp32, and room for the sum
  std::vector<std::byte> from_before_;  // a partial sum
  std::vector<std::byte> to_next_;      // a partial sum
  std::vector<std::byte> sums_[2];      // known in this step and in the one before
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_HIERARCHICAL_CHAIN_H_
