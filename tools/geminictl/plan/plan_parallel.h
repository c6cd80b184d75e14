// geminictl plan --parallel: how a model and its batch are sharded over the ranks of a cluster.
#ifndef GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_PARALLEL_H_
#define GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_PARALLEL_H_

#include "absl/status/statusor.h"
#include "tools/geminictl/output/context.h"
#include "tools/geminictl/plan/plan_options.h"

namespace geminid::ctl {

// `request` must be of a model. As RunPlan: base::kExitOk if a mesh fits; if none does,
// base::kExitResourceExhausted, and the nearest mesh is shown.
absl::StatusOr<int> RunParallelPlan(const Context& context, const PlanFlags& flags,
                                    const PlanRequest& request);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_PARALLEL_H_
