// The machine that geminictl plan plans for: from its flags, from a trace, or this machine.
#ifndef GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_HARDWARE_H_
#define GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_HARDWARE_H_

#include "absl/status/status.h"
#include "tools/geminictl/plan/plan_options.h"
#include "tools/geminictl/plan/this_machine.h"

namespace geminid::ctl {

// The name of a device in this machine's own memory.
inline constexpr char kHostDeviceName[] = "host device";

// Fills in the job's hardware and memory, the missing rates and the notes of `request`, which
// already has its ranks and its trace, if any. Flags override the trace, and the trace overrides
// --hardware. Without all of these and without memory, the machine is `machine`. INVALID_ARGUMENT
// names the flag.
absl::Status ReadPlanHardware(const PlanFlags& flags, const ThisMachine& machine,
                              PlanRequest* request);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_HARDWARE_H_
