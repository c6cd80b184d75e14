#ifndef GEMINID_TOOLS_KERNEL_CHECK_NORM_CHECK_H_
#define GEMINID_TOOLS_KERNEL_CHECK_NORM_CHECK_H_

#include <vector>

#include "tools/kernel-check/finding.h"

namespace geminid::kernel_check {

// Sums of squares of fp32, bf16 and fp16 values must have the bits of the host, with and without a
// value that is not finite. Also their speed over `timed_count` values (0: not timed).
std::vector<Finding> CheckNorms(size_t timed_count);

}  // namespace geminid::kernel_check

#endif  // GEMINID_TOOLS_KERNEL_CHECK_NORM_CHECK_H_
