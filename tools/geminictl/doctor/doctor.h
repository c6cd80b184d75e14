// geminictl doctor: checks what this machine has and lacks.
#ifndef GEMINID_TOOLS_GEMINICTL_DOCTOR_DOCTOR_H_
#define GEMINID_TOOLS_GEMINICTL_DOCTOR_DOCTOR_H_

#include "tools/geminictl/output/context.h"

namespace geminid::ctl {

// Works without a daemon. base::kExitUnhealthy if a check fails, else base::kExitOk.
absl::StatusOr<int> RunDoctor(const Context& context);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_DOCTOR_DOCTOR_H_
