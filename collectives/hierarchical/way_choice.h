// Which way a reduction over several hosts takes: messages from each rank to each, or from host to
// host in a chain. The sums have the same bits both ways, so the choice is one of time alone. Pure.
//
// Time is modelled as is usual: a message of n bytes takes alpha + beta n (R. W. Hockney, "The
// communication challenge for MPP", Parallel Computing 20, 1994; for collectives R. Thakur,
// R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH", IJHPCA
// 19, 2005). Between hosts alpha is LinkCosts::exchange_seconds, or flat_exchange_seconds where all
// ranks write to all at once, and beta seconds_per_byte, of a host's link, which its ranks share.
// Within a host it is meeting_seconds and no beta: what ranks copy there is about the same both
// ways.
#ifndef GEMINID_COLLECTIVES_HIERARCHICAL_WAY_CHOICE_H_
#define GEMINID_COLLECTIVES_HIERARCHICAL_WAY_CHOICE_H_

#include <cstddef>

#include "collectives/hierarchical/chain_plan.h"
#include "collectives/hierarchical/hosts.h"
#include "collectives/operation.h"
#include "geminid/communicator.h"

namespace geminid::collectives {

// How blocks are cut; see HierarchyOptions.
struct LaneBytes {
  size_t longest = 1024 * 1024;
  size_t shortest = 64 * 1024;
};

// How the chain would carry out `operation`, a reduction of `count` elements per rank: to all, to
// one, or in slices to all.
ChainPlan PlanOf(const Operation& operation, const Hosts& hosts, const LaneBytes& lanes);

// How long it should take each way.
struct WaySeconds {
  double flat = 0;
  double chain = 0;
};
WaySeconds SecondsOf(const Operation& operation, const Hosts& hosts, const LaneBytes& lanes,
                     const LinkCosts& costs);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_HIERARCHICAL_WAY_CHOICE_H_
