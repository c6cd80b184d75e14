#ifndef GEMINID_DAEMON_PLANNER_HIERARCHY_EVALUATE_H_
#define GEMINID_DAEMON_PLANNER_HIERARCHY_EVALUATE_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/planner/hierarchy/hierarchy.h"
#include "daemon/planner/hierarchy/occupancy.h"
#include "daemon/planner/hierarchy/update.h"

// The cost model: the bytes and seconds of given decisions.

namespace geminid::planner {

inline constexpr Moment kNoMoment = UINT32_MAX;

// Values that every evaluation of a problem needs, computed once. The problem is valid and outlives
// this object.
struct PreparedProblem {
  explicit PreparedProblem(const HierarchyProblem& problem_in,
                           const HierarchyPartSet& without_in = {});

  const HierarchyProblem& problem;
  const HierarchyPartSet without;         // stages that the planner leaves out
  std::vector<std::uint64_t> used_bytes;  // per moment, of the chunks it uses
  // The space that chunks must have: used_bytes, or under the policy kDevice all chunks.
  std::vector<std::uint64_t> required_bytes;
  std::vector<Moment> first_use;    // per chunk; kNoMoment if nothing uses it
  std::vector<Moment> gradient_at;  // per chunk, the moment after which its gradient leaves
  std::uint64_t device_state_limit = 0;
  // Work of one evaluation, in steps of its loops.
  std::int64_t work = 0;

  bool updated(ChunkIndex chunk) const {
    return problem.optimizer[chunk].parameters > 0 && first_use[chunk] != kNoMoment;
  }
};

// INVALID_ARGUMENT if a decision is not allowed for its item.
absl::Status CheckDecisions(const PreparedProblem& prepared, const Decisions& decisions);

// `decisions` must be allowed. A plan that does not fit is a result, not an error. Errors are the
// other errors of MakePlan.
absl::StatusOr<HierarchyPlan> Evaluate(const PreparedProblem& prepared, const Decisions& decisions);

// The updates of `decisions` that are not part of the computation, in the order in which they are
// done. Updates on the device are part of it. The device plan of `plan` sets their times. `chunks`,
// unless null, receives the chunk of each update.
std::vector<UpdateJob> UpdateJobs(const PreparedProblem& prepared, const Decisions& decisions,
                                  const HierarchyPlan& plan, std::vector<ChunkIndex>* chunks);

// Seconds that each resource is busy. AddTransfer adds those that a transfer over the link keeps
// the links and host memory busy.
using ResourceSeconds = std::array<double, kNumResources>;
void AddTransfer(const Machine& machine, double up_bytes, double down_bytes,
                 ResourceSeconds& seconds);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_HIERARCHY_EVALUATE_H_
