// Ranks on several hosts that are one in truth: each rank says which host it is on.
#ifndef GEMINID_TESTS_COLLECTIVES_HIERARCHICAL_HIERARCHICAL_WORLD_H_
#define GEMINID_TESTS_COLLECTIVES_HIERARCHICAL_HIERARCHICAL_WORLD_H_

#include "absl/time/time.h"
#include "collectives/hierarchical/hierarchical_communicator.h"
#include "tests/collectives/world.h"

namespace geminid::collectives {

// With reductions that go from host to host, cut so finely that a few elements already make many
// blocks.
HierarchyOptions FinelyCut();

// `host_by_rank` has as many names as there are ranks.
Communicators ConnectHosts(const std::vector<std::string>& host_by_rank, absl::Duration timeout,
                           const HierarchyOptions& options = FinelyCut());

// `hosts` names, each `ranks_each` times.
std::vector<std::string> HostNames(int hosts, int ranks_each);

// As many as `sizes` says, host by host.
std::vector<std::string> HostNames(const std::vector<int>& sizes);

// An even number of ranks on two hosts.
Backend HostsBackend();
// Four or six ranks on hosts of different sizes, the smallest first or last.
Backend GrowingHostsBackend();
Backend ShrinkingHostsBackend();

}  // namespace geminid::collectives

#endif  // GEMINID_TESTS_COLLECTIVES_HIERARCHICAL_HIERARCHICAL_WORLD_H_
