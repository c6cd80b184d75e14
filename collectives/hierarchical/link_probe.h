// What messages between hosts cost, measured.
#ifndef GEMINID_COLLECTIVES_HIERARCHICAL_LINK_PROBE_H_
#define GEMINID_COLLECTIVES_HIERARCHICAL_LINK_PROBE_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/hierarchical/layers.h"
#include "geminid/communicator.h"

namespace geminid::collectives {

// All ranks call it at once, and get the same: of each cost the slowest rank's, of whose tries the
// least counts, since what else the machine does only adds to it. Ten small exchanges and three
// of 1 MiB per host, each to the next: 25 ms of a link of 1 Gbit/s, 3 ms of one of 10.
absl::StatusOr<LinkCosts> MeasureLinks(Layers& layers, absl::Duration timeout);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_HIERARCHICAL_LINK_PROBE_H_
