// Which flags of geminictl plan go together.
#ifndef GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_RULES_H_
#define GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_RULES_H_

#include "absl/status/status.h"
#include "tools/geminictl/plan/plan_options.h"

namespace geminid::ctl {

// INVALID_ARGUMENT names both flags and what to do if one of them would be ignored because of the
// other. Checks which flags are given, not their values.
absl::Status CheckFlagsCombine(const PlanFlags& flags);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_RULES_H_
