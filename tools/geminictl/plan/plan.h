// geminictl plan: whether a model fits, how fast it trains, and what would make it fit. Needs no
// daemon.
#ifndef GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_H_
#define GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_H_

#include "tools/geminictl/output/context.h"
#include "tools/geminictl/plan/plan_options.h"

namespace geminid::ctl {

// base::kExitOk if the model fits, base::kExitResourceExhausted if not.
absl::StatusOr<int> RunPlan(const Context& context, const PlanFlags& flags);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_H_
