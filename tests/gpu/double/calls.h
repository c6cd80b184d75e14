// The functions of the driver as the double has them, by the names of the project's table. What
// each demands of its caller is in library.cc; here they may rely on it.
#ifndef GEMINID_TESTS_GPU_DOUBLE_CALLS_H_
#define GEMINID_TESTS_GPU_DOUBLE_CALLS_H_

#include "gpu/driver_api.h"

namespace geminid::gpu_double::calls {

#define GEMINID_DECLARE(member, name, parameters) CUresult member parameters;
GEMINID_DRIVER_FUNCTIONS(GEMINID_DECLARE)
GEMINID_NEWER_DRIVER_FUNCTIONS(GEMINID_DECLARE)
#undef GEMINID_DECLARE

}  // namespace geminid::gpu_double::calls

#endif  // GEMINID_TESTS_GPU_DOUBLE_CALLS_H_
