// Ranks on several hosts that are really one: each rank says on which host it is.
#ifndef GEMINID_TESTS_COLLECTIVES_HIERARCHICAL_HIERARCHICAL_WORLD_H_
#define GEMINID_TESTS_COLLECTIVES_HIERARCHICAL_HIERARCHICAL_WORLD_H_

#include "absl/time/time.h"
#include "collectives/hierarchical/hierarchical_communicator.h"
#include "tests/collectives/world.h"

namespace geminid::collectives {

// Reductions go from host to host, in blocks so small that a few elements fill many.
HierarchyOptions FinelyCut();

// `host_by_rank` has a name for each rank.
Communicators ConnectHosts(const std::vector<std::string>& host_by_rank, absl::Duration timeout,
                           const HierarchyOptions& options = FinelyCut());

// `hosts` names, each repeated `ranks_each` times.
std::vector<std::string> HostNames(int hosts, int ranks_each);

// Repeats the name of each host as often as `sizes` says.
std::vector<std::string> HostNames(const std::vector<int>& sizes);

// An even number of ranks on two hosts.
Backend HostsBackend();
// Four or six ranks on hosts of different sizes, the smallest first or last.
Backend GrowingHostsBackend();
Backend ShrinkingHostsBackend();

}  // namespace geminid::collectives

#endif  // GEMINID_TESTS_COLLECTIVES_HIERARCHICAL_HIERARCHICAL_WORLD_H_
