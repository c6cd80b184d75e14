// The machine that geminictl plan is asked about: from its flags, from a trace, or this one.
#ifndef GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_HARDWARE_H_
#define GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_HARDWARE_H_

#include "absl/status/status.h"
#include "tools/geminictl/plan/plan_options.h"
#include "tools/geminictl/plan/this_machine.h"

namespace geminid::ctl {

// Of a device in this machine's own memory.
inline constexpr char kHostDeviceName[] = "host device";

// Fills the job's hardware and memory of `request`, whose trace, if any, and ranks are there
// already, with its missing rates and its notes. Flags come before the trace, the trace before
// --hardware; without any of them and without memory it is `machine`. INVALID_ARGUMENT naming the
// flag.
absl::Status ReadPlanHardware(const PlanFlags& flags, const ThisMachine& machine,
                              PlanRequest* request);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_HARDWARE_H_
