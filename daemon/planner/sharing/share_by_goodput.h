// Divides a node among jobs by the goodput that each would have with more of it. A pure function of
// the jobs, their rows and the time. It makes only decisions; NodeSharing (node_sharing.h) carries
// them out.
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
  double least_seconds = 60;  // for which a job keeps a row at least
  // Rows change if the jobs then end earlier by at least this fraction: 0.02 is two percent.
  double least_gain = 0.02;
  double move_seconds = 5;  // that a running job loses when it gets another row
  // The seconds of work at its best row of a job whose remaining work is not known.
  double unknown_seconds = 3600;
};

struct SharingDecision {
  std::vector<std::optional<std::size_t>> rows;  // by job; nothing: it waits
  // From the jobs' present rows, in an order that fits.
  std::vector<Move> moves;
  std::optional<double> look_again{};  // when a job that keeps its row for now may get another
};

// Rules, in order of precedence:
// 1. Guarantees hold, also within least_seconds of a change. If jobs would have to swap rows for
//    that, and no order of moves lets them, they keep their rows.
// 2. No other row changes within least_seconds.
// 3. A higher priority is served before all lower ones, from the room that guarantees leave.
// 4. Jobs of one priority share by goodput.
//
// INVALID_ARGUMENT: a row without goodput above 0, a present row that the job does not list,
// remaining work that is below 0 or not finite, jobs that have more than the node, or no row that
// has the guarantee and fits the node. RESOURCE_EXHAUSTED: the guarantees do not fit the node
// together.
// Cost: about 10 n^3 r for n jobs of one priority with r rows.
absl::StatusOr<SharingDecision> ShareByGoodput(const Share& node, std::span<const SharingJob> jobs,
                                               const SharingSettings& settings, double now);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_SHARING_SHARE_BY_GOODPUT_H_
