#ifndef GEMINID_TESTS_TOOLS_KERNEL_CHECK_DEVICE_ON_HOST_H_
#define GEMINID_TESTS_TOOLS_KERNEL_CHECK_DEVICE_ON_HOST_H_

#include "tests/kernels/cuda_on_host/registry.h"

namespace geminid::cuda_on_host {

// The order of blocks in every launch of this program.
extern BlockOrder launch_order;

}  // namespace geminid::cuda_on_host

#endif  // GEMINID_TESTS_TOOLS_KERNEL_CHECK_DEVICE_ON_HOST_H_
