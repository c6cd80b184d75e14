// Measures the cost of messages between hosts.
#ifndef GEMINID_COLLECTIVES_HIERARCHICAL_LINK_PROBE_H_
#define GEMINID_COLLECTIVES_HIERARCHICAL_LINK_PROBE_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/hierarchical/hierarchy_levels.h"
#include "geminid/communicator.h"

namespace geminid::collectives {

// Collective; all ranks get the same costs. Each is that of the slowest rank, and a rank's cost is
// the least of its tries, since other work of the machine only adds to it. Ten small exchanges and
// three of 1 MiB per host, each to the next host: 25 ms at 1 Gbit/s, 3 ms at 10 Gbit/s.
absl::StatusOr<LinkCosts> MeasureLinks(HierarchyLevels& levels, absl::Duration timeout);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_HIERARCHICAL_LINK_PROBE_H_
