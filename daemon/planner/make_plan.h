#ifndef GEMINID_DAEMON_PLANNER_MAKE_PLAN_H_
#define GEMINID_DAEMON_PLANNER_MAKE_PLAN_H_

#include "absl/status/statusor.h"
#include "daemon/planner/contract/plan.h"
#include "daemon/planner/contract/trace.h"
#include "daemon/planner/problem/stage.h"

namespace geminid::planner {

// Plans one iteration. A pure function: no I/O, threads, clocks or randomness. The same input gives
// the same bits on every machine, so each rank may compute the plan for itself.
//
// Renaming chunks (permuting Trace::chunks and the indices in the uses) only renames the plan.
//
// Optimality, for Objective::kBytes. If chunks have one size and no valid copy crosses the
// iteration boundary, the choice of what stays is optimal (Belady's rule; retention.h). If the
// capacity also falls and then rises over the iteration, as activations make it do, every choice
// can be placed at fixed offsets (assign_offsets.h). h2d_bytes then equals lower_bound_bytes. In
// other cases compare the two.
//
// Errors: INVALID_ARGUMENT for a malformed trace or option. RESOURCE_EXHAUSTED if the chunks of one
// moment do not fit beside its workspace, with the moment, the bytes, and the smallest arena that
// would do. Policy::kDevice needs space for all chunks beside the largest workspace.
//
// Cost: O((uses + moments) log) for each candidate plan. There are usually one to three, at most
// about fifty. No further one is built once a budget of counted operations is spent. 10,000 chunks
// and 20,000 uses take about a second in the worst order (tools/bench/planner_bench.cc).
// `without`: stages that the planner leaves out, to measure what they are worth.
absl::StatusOr<Plan> MakePlan(const Trace& trace, const PlannerOptions& options,
                              const StageSet& without = {});

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_MAKE_PLAN_H_
