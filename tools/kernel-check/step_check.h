#ifndef GEMINID_TOOLS_KERNEL_CHECK_STEP_CHECK_H_
#define GEMINID_TOOLS_KERNEL_CHECK_STEP_CHECK_H_

#include "tools/kernel-check/finding.h"
#include "tools/kernel-check/step_cases.h"

namespace geminid::kernel_check {

// One step in every form of weights and gradients, in place and out of place, on and off 16-byte
// words, must have the bits of the host. Then measures its speed with split weights and bf16
// gradients, in place, over `timed_count` parameters (0: not timed).
Finding CheckStep(const StepCase& one, size_t timed_count);

}  // namespace geminid::kernel_check

#endif  // GEMINID_TOOLS_KERNEL_CHECK_STEP_CHECK_H_
