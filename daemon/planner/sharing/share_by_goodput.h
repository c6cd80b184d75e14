// Shares a node out among jobs by what each would do with more of it: a pure function of the jobs,
// their rows and the time. It moves nothing itself: NodeSharing (node_sharing.h) has that done.
#ifndef GEMINID_DAEMON_PLANNER_SHARING_SHARE_BY_GOODPUT_H_
#define GEMINID_DAEMON_PLANNER_SHARING_SHARE_BY_GOODPUT_H_

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/planner/sharing/move_order.h"
#include "daemon/planner/sharing/share.h"

namespace geminid::planner {

struct SharingSettings {
  double least_seconds = 60;  // for which a job keeps a row
  // Rows change for this much less time to the ends of the jobs: 0.02 is two percent.
  double least_gain = 0.02;
  double move_seconds = 5;  // that a running job loses when it is given another row
  // Of work at its best row: taken for a job whose remaining work is not known.
  double unknown_seconds = 3600;
};

struct SharingDecision {
  std::vector<std::optional<std::size_t>> rows;  // by job; nothing: it waits
  std::vector<Move> moves;                       // from what the jobs have, in an order that fits
  std::optional<double> look_again{};  // when a job that keeps its row for now may be given another
};

// In this order: guarantees hold, also within least_seconds of a change. Where jobs would have to
// swap rows for that, and no order of moves lets them, they keep their rows. Nobody's row is
// changed within least_seconds otherwise. A higher priority is served before all lower ones, from
// what guarantees leave. Jobs of one priority share by goodput.
//
// INVALID_ARGUMENT: a row without goodput above 0, a job's row that it does not have, work left
// that is below 0 or not finite, jobs that have more than the node, no row that has the guarantee
// and fits the node. RESOURCE_EXHAUSTED: the guarantees do not fit the node together.
// Cost: of n jobs of one priority with r rows, about 10 n^3 r.
absl::StatusOr<SharingDecision> ShareByGoodput(const Share& node, std::span<const SharingJob> jobs,
                                               const SharingSettings& settings, double now);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_SHARING_SHARE_BY_GOODPUT_H_
