// geminictl doctor: what this machine has and lacks.
#ifndef GEMINID_TOOLS_GEMINICTL_DOCTOR_DOCTOR_H_
#define GEMINID_TOOLS_GEMINICTL_DOCTOR_DOCTOR_H_

#include "tools/geminictl/output/context.h"

namespace geminid::ctl {

// Works without a daemon. Unhealthy where a check fails.
absl::StatusOr<int> RunDoctor(const Context& context);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_DOCTOR_DOCTOR_H_
