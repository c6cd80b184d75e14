// Which flags of geminictl plan go together.
#ifndef GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_RULES_H_
#define GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_RULES_H_

#include "absl/status/status.h"
#include "tools/geminictl/plan/plan_options.h"

namespace geminid::ctl {

// INVALID_ARGUMENT naming both flags and what to do, where one would be passed over because of the
// other. Looks at which flags are given, not at what they say.
absl::Status CheckFlagsCombine(const PlanFlags& flags);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_RULES_H_
