// Chooses the way of a reduction over several hosts: messages from each rank to each rank, or a
// chain from host to host. Both give the same bits, so only the time matters. Pure.
//
// The usual model of time: a message of n bytes takes alpha + beta n (R. W. Hockney, "The
// communication challenge for MPP", Parallel Computing 20, 1994; for collectives R. Thakur, R.
// Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH", IJHPCA
// 19, 2005). Between hosts alpha is LinkCosts::exchange_seconds, or flat_exchange_seconds if all
// ranks write to all ranks at once. Beta is seconds_per_byte, of a host's link, which its ranks
// share. Within a host alpha is meeting_seconds and beta is 0, since ranks copy about the same
// number of bytes both ways.
#ifndef GEMINID_COLLECTIVES_HIERARCHICAL_ALGORITHM_CHOICE_H_
#define GEMINID_COLLECTIVES_HIERARCHICAL_ALGORITHM_CHOICE_H_

#include <cstddef>

#include "collectives/hierarchical/chain_plan.h"
#include "collectives/hierarchical/hosts.h"
#include "collectives/operation.h"
#include "geminid/communicator.h"

namespace geminid::collectives {

// The limits of lanes; see HierarchyOptions.
struct LaneBytes {
  size_t longest = 1024 * 1024;
  size_t shortest = 64 * 1024;
};

// The chain's plan for `operation`, a reduction of `count` elements per rank: for all ranks, for
// one, or in slices for all.
ChainPlan PlanOf(const Operation& operation, const Hosts& hosts, const LaneBytes& lanes);

// The estimated time of each way.
struct AlgorithmSeconds {
  double flat = 0;
  double chain = 0;
};
AlgorithmSeconds SecondsOf(const Operation& operation, const Hosts& hosts, const LaneBytes& lanes,
                           const LinkCosts& costs);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_HIERARCHICAL_ALGORITHM_CHOICE_H_
